// What the reader's token allows. The page hides what a token that only reads cannot use,
// and the mirror refuses it in any case.
import { ask } from './ask.js';

/**
 * Marks the page with the role. The style sheet hides elements of the class `changes` for
 * the role `read`, and shows those of the class `readers`, which say why.
 */
export async function loadRole() {
  try {
    const { role } = await ask('console/access');
    document.body.dataset.role = role;
  } catch {
    // The buttons stay: if one of them is not allowed, the mirror's refusal is shown.
  }
}
