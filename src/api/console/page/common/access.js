// What the reader's token allows. The page hides what a read-only token cannot use; the
// mirror would refuse it anyway.
import { ask } from './ask.js';
import { byId } from './dom.js';

/**
 * Marks the page with the role. For the role `read`, the style sheet hides elements of
 * the class `changes`, and shows those of the class `readers`, which explain why.
 */
export async function loadRole() {
  try {
    const { role, hasLogin } = await ask('console/access');
    document.body.dataset.role = role;
    // Without a token there is no session to end.
    byId('logout').hidden = !hasLogin;
  } catch {
    // The buttons stay: if one of them is not allowed, the mirror's refusal is shown.
  }
}
