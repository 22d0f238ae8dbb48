/** A page of the console over facts that a test sets and changes. */
import { EMPTY_FACTS } from '../mirror.ts';
import { type ConsolePage, openPage } from './browser.ts';
import {
  type Facts,
  type FixedConsole,
  type FixedParts,
  openFixedConsole,
  quiet,
} from './fixed-console.ts';

const EVERY_MS = 50;

export interface FixedView extends AsyncDisposable {
  readonly console: FixedConsole;
  readonly view: ConsolePage;
}

/**
 * @param facts what differs from a quiet mirror that knows nothing
 * @param path the page's path and query
 */
export async function openFixedView(
  facts: Partial<Facts>,
  path = '/',
  parts: FixedParts = {},
): Promise<FixedView> {
  await using stack = new AsyncDisposableStack();
  const all = {
    live: quiet(),
    status: EMPTY_FACTS,
    runs: [],
    settings: [],
    ...facts,
  };
  const console = stack.use(await openFixedConsole(all, EVERY_MS, parts));
  const view = stack.use(await openPage());
  await view.page.goto(new URL(path, console.url).href);
  const owned = stack.move();
  return {
    console,
    view,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
