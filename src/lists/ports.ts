/**
 * What a sync of a list is asked for, and what it needs from the source and from the
 * resume state.
 */
import type { Micros } from '../time/time.ts';

export type ListName = 'parties' | 'checkpoints';

export interface SyncRequest {
  readonly list: ListName;
  /** The id of an open row of `mirror.runs`, in which the verdict is recorded. */
  readonly runId: string;
  /** Reads everything again. */
  readonly isAudit: boolean;
  /** Reads everything again if no more rows are held: each night does. */
  readonly wholeUpToRows?: number | undefined;
  readonly pageSize: number;
  /**
   * A person has confirmed that the source shows a new network, of which no row is held.
   */
  readonly acceptNewNetwork?: boolean | undefined;
  /** A person has confirmed that the list lost many rows. */
  readonly acceptShrunk?: boolean | undefined;
}

/** One row of a list as the source sent it, with the cursor of its edge. */
export interface ListedRow {
  /**
   * Opaque: sent back as it came, compared with nothing but the cursors of the same page.
   */
  readonly cursor: string;
  /**
   * Natural key: the party's id, or `atBlock/hash/blockHash` as `checkpointKey` writes
   * it.
   */
  readonly key: string;
  /** Fields of the node that nobody knew, or undefined. */
  readonly extra: Readonly<Record<string, unknown>> | undefined;
  /** Absent where the row is understood. */
  readonly odd?: OddRow;
}

/**
 * A row that is not understood. It has its place in a page, under a key that stands for
 * its bytes (`oddKey`), and is not stored among the others.
 */
export interface OddRow {
  /** What is wrong with it, in words. */
  readonly because: string;
  /** The row as it came: the beginning of its JSON, without secrets. */
  readonly row: string;
}

export interface PageRequest {
  readonly list: ListName;
  readonly newestFirst: boolean;
  readonly size: number;
  /** Forward paging: the rows behind this cursor. Absent: the first page. */
  readonly after?: string | undefined;
  /**
   * Asks for the last rows of the order instead of the first (`pagination.last`); never
   * together with `after`.
   */
  readonly fromEnd?: boolean | undefined;
  /** Sends one request and no retry: its failure is the answer. */
  readonly isOneAttempt?: boolean | undefined;
}

export interface Page {
  /** In the order of the answer; rows that are not understood have their place in it. */
  readonly rows: readonly ListedRow[];
  /** A hint that proves nothing. */
  readonly hasNextPage: boolean;
  /** Undefined where the source left them out. */
  readonly startCursor: string | undefined;
  readonly endCursor: string | undefined;
  /** The source's last block when it answered (`X-Block-*`), where it said so. */
  readonly blockHeight: bigint | undefined;
  readonly blockTime: Micros | undefined;
  /** When the answer was given, by the server's clock. */
  readonly answeredAt?: Micros | undefined;
}

/** The lists of the source. Retries, rate and timeouts are its own affair. */
export interface ListSource {
  /**
   * @throws PermanentError `PAGE_TOO_LARGE` where the source cannot send or refuses a
   *   page of this size
   * @throws PermanentError `CURSOR_REFUSED` where it refuses the cursor (400, or 500
   *   again and again, with a cursor sent)
   * @throws PermanentError `PAGE_SHAPE` if the answer is not a page, names the offending
   *   value
   * @throws RetryableError after its own retries are used up
   * @throws UnreachableError if no connection came about
   */
  page(question: PageRequest, signal: AbortSignal): Promise<Page>;
  /** One party by filter; undefined where the source knows none of that id (404). */
  party(id: string, signal: AbortSignal): Promise<ListedRow | undefined>;
}

/**
 * Where resume points lie: Redis, or Postgres in its place. It may forget, and go back in
 * time.
 */
export interface ResumePointStore {
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown, ttlMs: number): Promise<void>;
}
