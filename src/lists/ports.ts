/**
 * The request for a sync of a list, and the sync's dependencies on the source and the
 * resume state.
 */
import type { Micros } from '../time/time.ts';

export type ListName = 'parties' | 'checkpoints';

export interface SyncRequest {
  readonly list: ListName;
  /** The id of an open row of `mirror.runs`, in which the verdict is recorded. */
  readonly runId: string;
  /** Whether to read the whole list again. */
  readonly isAudit: boolean;
  /**
   * The largest number of stored rows up to which the whole list is read again; the
   * nightly run sets it.
   */
  readonly wholeUpToRows?: number | undefined;
  readonly pageSize: number;
  /**
   * Whether an operator has confirmed that the source shows a new network, from which
   * no row is stored.
   */
  readonly acceptNewNetwork?: boolean | undefined;
  /** Whether an operator has confirmed that the list lost many rows. */
  readonly acceptShrunk?: boolean | undefined;
}

/** One row of a list as the source sent it, with the cursor of its edge. */
export interface ListedRow {
  /**
   * The cursor, which is opaque: it is sent back unchanged, and compared only with the
   * cursors of the same page.
   */
  readonly cursor: string;
  /**
   * The natural key: the party's id, or `atBlock/hash/blockHash` as `checkpointKey`
   * writes it.
   */
  readonly key: string;
  /**
   * Fields of the node that this version does not know; undefined if there are no such
   * fields.
   */
  readonly extra: Readonly<Record<string, unknown>> | undefined;
  /** The details of a row that could not be understood; absent for any other row. */
  readonly odd?: OddRow;
}

/**
 * A row that could not be understood. It keeps its position in the page, under a key
 * that stands for its bytes (`oddKey`), and is not stored with the other rows.
 */
export interface OddRow {
  /** The reason why the row was not understood, in words. */
  readonly because: string;
  /** The beginning of the row's JSON as it was sent, without secrets. */
  readonly row: string;
}

export interface PageRequest {
  readonly list: ListName;
  readonly newestFirst: boolean;
  readonly size: number;
  /**
   * Requests the rows after this cursor (forward paging); if absent, the first page.
   */
  readonly after?: string | undefined;
  /**
   * Requests the last rows of the order instead of the first (`pagination.last`); never
   * together with `after`.
   */
  readonly fromEnd?: boolean | undefined;
  /**
   * Whether to send the request only once, and report its failure instead of retrying.
   */
  readonly isOneAttempt?: boolean | undefined;
  /**
   * Whether this is a request for a row or two that other work waits for. If its answer
   * arrives too slowly or fails twice, it is given up within two minutes.
   */
  readonly isSmall?: boolean | undefined;
}

export interface Page {
  /** Rows in the order of the answer, including those that are not understood. */
  readonly rows: readonly ListedRow[];
  /** Whether the source promises more rows: a hint that proves nothing. */
  readonly hasNextPage: boolean;
  /** The cursors of `pageInfo`; undefined if the source left them out. */
  readonly startCursor: string | undefined;
  readonly endCursor: string | undefined;
  /** The source's last block when it answered (`X-Block-*`), if it reported one. */
  readonly blockHeight: bigint | undefined;
  readonly blockTime: Micros | undefined;
  /** The size of the answer's JSON, after decompression; absent in a double. */
  readonly bytes?: number;
  /** When the source answered, by the server's clock. */
  readonly answeredAt?: Micros | undefined;
  /**
   * Whether a mirror answered: its block time is the instant up to which its ledgers are
   * proven, and no later one.
   */
  readonly isProven?: boolean;
}

/**
 * The lists of the source. The implementation handles retries, rate limits and
 * timeouts.
 */
export interface ListSource {
  /**
   * Requests one page of a list.
   * @throws PermanentError `PAGE_TOO_LARGE` if the source cannot send, or refuses, a
   *   page of this size
   * @throws PermanentError `CURSOR_REFUSED` if it refuses the cursor (400, or repeated
   *   500 answers when a cursor was sent)
   * @throws PermanentError `PAGE_SHAPE` if the answer is not a page; the message names
   *   the offending value
   * @throws RetryableError after the source's own retries are used up
   * @throws UnreachableError if no connection could be made
   */
  page(question: PageRequest, signal: AbortSignal): Promise<Page>;
  /** Requests one party by its id; undefined if the source does not know it (404). */
  party(id: string, signal: AbortSignal): Promise<ListedRow | undefined>;
}

/**
 * The store of resume points: Redis, or Postgres if Redis is not used. It may lose
 * resume points, or return an older one.
 */
export interface ResumePointStore {
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown, ttlMs: number): Promise<void>;
}
