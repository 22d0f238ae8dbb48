/** Asks for the pages of one generation, in sizes that the source takes. */
import { errorCode } from '../core/errors.ts';
import { askPage, type SyncContext } from './context.ts';
import { isSameRows } from './groups.ts';
import { doubt } from './guards.ts';
import type { Page } from './ports.ts';

/** A group larger than this many rows cannot be read. */
export const SIZE_MAX = 1 << 17;

export interface Asked {
  readonly after: string | undefined;
  readonly size: number;
  readonly page: Page;
}

export class PageRequests {
  readonly #context: SyncContext;
  /** The largest page that the source did not refuse, where it refused one. */
  sizeMax: number | undefined;

  constructor(context: SyncContext, sizeMax: number | undefined) {
    this.#context = context;
    this.sizeMax = sizeMax;
  }

  /** How many rows a page is asked for, at most. */
  get size(): number {
    return this.#limit(this.#context.pageSize);
  }

  /** The page behind the cursor, oldest first; smaller where the source refuses one of that size. */
  ask(after: string | undefined, wanted: number): Promise<Asked> {
    return this.#inSize(after, wanted, (size) => askPage(this.#context, { newestFirst: false, size, after }));
  }

  /** The newest-first page, or the last one oldest first, no larger than the source sends. */
  askNewest(fromEnd: boolean): Promise<Asked> {
    const question = fromEnd ? { newestFirst: false, fromEnd } : { newestFirst: true };
    return this.#inSize(undefined, this.size, (size) => askPage(this.#context, { ...question, size }));
  }

  /** @throws DoubtSeen `PAGE_DIFFERS` where the same page now shows other rows */
  async askTwice({ after, size, page }: Asked): Promise<void> {
    const again = await this.ask(after, size);
    if (isSameRows(page.rows, again.page.rows)) return;
    throw doubt(this.#context.list, 'PAGE_DIFFERS', 'the source shows other rows behind the same cursor', {
      before: page.rows[0]?.key,
      after: again.page.rows[0]?.key,
    });
  }

  async #inSize(
    after: string | undefined,
    wanted: number,
    ask: (size: number) => Promise<Page>,
  ): Promise<Asked> {
    for (;;) {
      const size = this.#limit(wanted);
      try {
        return { after, size, page: await ask(size) };
      } catch (error) {
        if (errorCode(error) !== 'PAGE_TOO_LARGE' || size === 1) throw error;
        this.sizeMax = Math.max(1, Math.floor(size / 2));
      }
    }
  }

  #limit(size: number): number {
    return Math.min(size, this.sizeMax ?? SIZE_MAX);
  }
}
