/** Asks for the pages of one generation: in sizes that the source takes, and one page ahead. */
import { errorCode } from '../core/errors.ts';
import { askPage, type SyncContext } from './context.ts';
import { isSameRows } from './groups.ts';
import { doubt } from './guards.ts';
import type { Page } from './ports.ts';

/** A group larger than this many rows cannot be read. */
export const SIZE_MAX = 1 << 17;

interface Question {
  readonly after: string | undefined;
  readonly size: number;
}

export interface Asked extends Question {
  readonly page: Page;
}

export class PageRequests {
  readonly #context: SyncContext;
  #sizeMax: number | undefined;
  #ahead: { readonly question: Question; readonly answer: Promise<Page | Error> } | undefined;

  /** @param sizeMax the largest page that the source did not refuse, where it refused one */
  constructor(context: SyncContext, sizeMax: number | undefined) {
    this.#context = context;
    this.#sizeMax = sizeMax;
  }

  get sizeMax(): number | undefined {
    return this.#sizeMax;
  }

  /** How many rows a page is asked for, at most. */
  get size(): number {
    return Math.min(this.#context.pageSize, this.#sizeMax ?? SIZE_MAX);
  }

  /** The page behind the cursor, oldest first; smaller where the source refuses one of that size. */
  async ask(after: string | undefined, wanted: number): Promise<Asked> {
    for (;;) {
      const size = this.#sizeOf(wanted);
      const ahead = this.#ahead;
      this.#ahead = undefined;
      try {
        const isAhead = ahead !== undefined && ahead.question.after === after && ahead.question.size === size;
        const answer = isAhead
          ? await ahead.answer
          : await askPage(this.#context, { newestFirst: false, size, after });
        if (answer instanceof Error) throw answer;
        return { page: answer, after, size };
      } catch (error) {
        this.#shrink(error, size);
      }
    }
  }

  /** Prefetches the page; the next call for the same page gets this answer. */
  askAhead(after: string | undefined, wanted: number): void {
    const question = { after, size: this.#sizeOf(wanted) };
    const answer = askPage(this.#context, { newestFirst: false, ...question }).catch((error: unknown) =>
      error instanceof Error ? error : new Error(String(error)),
    );
    this.#ahead = { question, answer };
  }

  /** The newest-first page, or the last one oldest first, no larger than the source sends. */
  async askNewest(fromEnd: boolean): Promise<Asked> {
    for (;;) {
      const { size } = this;
      try {
        const question = fromEnd ? { newestFirst: false, fromEnd } : { newestFirst: true };
        return { after: undefined, size, page: await askPage(this.#context, { ...question, size }) };
      } catch (error) {
        this.#shrink(error, size);
      }
    }
  }

  /** @throws DoubtSeen `PAGE_DIFFERS` where the same page now shows other rows */
  async askTwice(asked: Asked): Promise<void> {
    const again = await this.ask(asked.after, asked.size);
    if (isSameRows(asked.page.rows, again.page.rows)) return;
    throw doubt(this.#context.list, 'PAGE_DIFFERS', 'the source shows other rows behind the same cursor', {
      before: asked.page.rows[0]?.key,
      after: again.page.rows[0]?.key,
    });
  }

  #sizeOf(size: number): number {
    return Math.min(size, this.#sizeMax ?? SIZE_MAX);
  }

  #shrink(error: unknown, size: number): void {
    if (errorCode(error) !== 'PAGE_TOO_LARGE' || size === 1) throw error;
    this.#sizeMax = Math.max(1, Math.floor(size / 2));
  }
}
