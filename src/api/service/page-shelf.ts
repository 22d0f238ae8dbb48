/**
 * Pages made a moment ago, for all who ask for the same, and the next pages of whoever follows the cursors: they are made
 * while the client still reads the one before. A page is kept only for as long as the state that it was
 * read under, and is never older than that state, which its headers name.
 */
import type { Page, PageRequest } from './paging.ts';
import type { ListState } from './store/read-store.ts';

/** The largest are of two megabytes. */
const PAGES_MAX = 24;
/**
 * For one who came for a page that was made ahead. Between two requests of a client that only reads there is
 * less time than a page takes, so that one page ahead would always be waited for.
 */
const AHEAD_OF_READER = 2;
/** What is made for requests that may never come must not hold up those that did. */
const AHEAD_MAX = 4;

/** @throws StatusError and what the store throws; such a page is not kept */
export type MakePage<Position> = (request: PageRequest<Position>, state: ListState) => Promise<Page>;

export class PageShelf<Position> {
  readonly #make: MakePage<Position>;
  readonly #readCursor: (text: string) => Position | undefined;
  readonly #pages = new Map<string, Promise<Page>>();
  #state: ListState | undefined;
  #ahead = 0;

  constructor(make: MakePage<Position>, readCursor: (text: string) => Position | undefined) {
    this.#make = make;
    this.#readCursor = readCursor;
  }

  /** @param state read before the page is, and told with it */
  async page(request: PageRequest<Position>, state: ListState): Promise<Page> {
    if (state !== this.#state) this.#pages.clear();
    this.#state = state;
    const isForeseen = this.#pages.has(keyOf(request));
    const page = await this.#shared(request, state);
    // Who comes with a cursor comes again with the next.
    if (request.cursor !== undefined) this.#makeNext(request, page, state, isForeseen ? AHEAD_OF_READER : 1);
    return page;
  }

  #shared(request: PageRequest<Position>, state: ListState): Promise<Page> {
    const key = keyOf(request);
    const known = this.#pages.get(key);
    if (known !== undefined) return known;
    const page = this.#make(request, state);
    this.#pages.set(key, page);
    page.catch(() => {
      if (this.#pages.get(key) === page) this.#pages.delete(key);
    });
    const [oldest] = this.#pages.keys();
    if (this.#pages.size > PAGES_MAX && oldest !== undefined) this.#pages.delete(oldest);
    return page;
  }

  /** One after the other: each begins where the one before it ends. */
  #makeNext(request: PageRequest<Position>, page: Page, state: ListState, pages: number): void {
    const isForward = request.direction === 'forward';
    const hasMore = isForward ? page.hasNextPage : page.hasPreviousPage;
    if (pages === 0 || !hasMore || this.#ahead >= AHEAD_MAX || state !== this.#state) return;
    const cursorText = isForward ? page.endCursor : page.startCursor;
    void this.#makeAhead({ ...request, cursorText, cursor: this.#readCursor(cursorText) }, state, pages);
  }

  async #makeAhead(request: PageRequest<Position>, state: ListState, pages: number): Promise<void> {
    this.#ahead += 1;
    // Where it fails, it fails again for the request that wants it, which then tells.
    const page = await this.#shared(request, state).catch(() => undefined);
    this.#ahead -= 1;
    if (page === undefined) return;
    this.#makeNext(request, page, state, pages - 1);
    // Written once the store has been asked for the one behind it.
    setImmediate(() => void page.json);
  }
}

function keyOf({ direction, newestFirst, rowsMax, cursorText }: PageRequest<unknown>): string {
  return `${direction} ${newestFirst} ${rowsMax} ${cursorText}`;
}
