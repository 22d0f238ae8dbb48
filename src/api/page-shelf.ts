/**
 * Pages made a moment ago, for all who ask for the same, and the next page of whoever walks: it is made
 * while the client still reads the one before. A page is kept only for as long as the state that it was
 * read under, and is never older than that state, which its headers name.
 */
import type { Page, PageRequest } from './paging.ts';
import type { ListState } from './ports.ts';

/** The largest are of two megabytes. */
const PAGES_MAX = 16;
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
    const page = await this.#shared(request, state);
    // Who comes with a cursor walks, and comes again with the next.
    if (request.cursor !== undefined) this.#makeNext(request, page, state);
    return page;
  }

  #shared(request: PageRequest<Position>, state: ListState): Promise<Page> {
    const key = `${request.direction} ${request.newestFirst} ${request.rowsMax} ${request.cursorText}`;
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

  #makeNext(request: PageRequest<Position>, page: Page, state: ListState): void {
    const isForward = request.direction === 'forward';
    const hasMore = isForward ? page.hasNextPage : page.hasPreviousPage;
    if (!hasMore || this.#ahead >= AHEAD_MAX || state !== this.#state) return;
    const cursorText = isForward ? page.endCursor : page.startCursor;
    const next = { ...request, cursorText, cursor: this.#readCursor(cursorText) };
    this.#ahead += 1;
    // Where it fails, it fails again for the request that wants it, which then tells.
    void this.#shared(next, state)
      .catch(() => undefined)
      .finally(() => (this.#ahead -= 1));
  }
}
