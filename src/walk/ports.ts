/** What a walk needs from the source and from the warehouse. */
import type { Micros } from '../core/time.ts';

export type ListName = 'parties' | 'checkpoints';

/** One row of a list as the source sent it, with the cursor of its edge. */
export interface ListedRow {
  readonly cursor: string;
  /** Natural key: the party's id, or `atBlock/hash/blockHash`. */
  readonly key: string;
  /** Rows of one group share a cursor: the party's id, or the height as decimal text. */
  readonly group: string;
  /** Parties: [id]. Checkpoints: [atBlock, hash, blockHash]. Validated and canonical. */
  readonly fields: readonly string[];
  /** Fields of the node that nobody knew, or undefined. */
  readonly extra: Readonly<Record<string, unknown>> | undefined;
}

export interface PageQuestion {
  readonly list: ListName;
  readonly newestFirst: boolean;
  readonly size: number;
  /** Forward paging: the rows behind this cursor. Absent: the first page. */
  readonly after?: string | undefined;
  /** Backward paging (`last` with `before`); never together with `after`. */
  readonly before?: string | undefined;
}

export interface Page {
  readonly rows: readonly ListedRow[];
  readonly hasNextPage: boolean;
  readonly hasPreviousPage: boolean;
  readonly startCursor: string;
  readonly endCursor: string;
  /** The source's last block when it answered (`X-Block-*`), where it said so. */
  readonly blockHeight: bigint | undefined;
  readonly blockTime: Micros | undefined;
  /** Size of the answer's body, decoded. */
  readonly bytes: number;
}

/** The lists of the source. Retries, rate and timeouts are its own affair. */
export interface ListSource {
  /** Stable text that names the node asked; anchors are only sent back to the same one. */
  readonly baseUrl: string;
  /**
   * @throws PermanentError `PAGE_TOO_LARGE` where the source cannot send or refuses a page of this size
   * @throws PermanentError `CURSOR_REFUSED` where it refuses the cursor (400, or 500 again and again, with a cursor sent)
   * @throws PermanentError `PAGE_SHAPE` where the answer is no page, names the offending value
   * @throws RetryableError after its own retries are used up
   * @throws UnreachableError where no connection came about
   */
  page(question: PageQuestion, signal: AbortSignal): Promise<Page>;
  /** One party by filter; undefined where the source knows none of that id (404). */
  party(id: string, signal: AbortSignal): Promise<ListedRow | undefined>;
}
