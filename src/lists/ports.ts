/**
 * The request for a sync of a list, and what the sync needs from the source and the
 * resume state.
 */
import type { Micros } from '../time/time.ts';

export type ListName = 'parties' | 'checkpoints';

export interface SyncRequest {
  readonly list: ListName;
  /** The id of an open row of `mirror.runs`, in which the verdict is recorded. */
  readonly runId: string;
  /** Whether to reread the whole list. */
  readonly isAudit: boolean;
  /**
   * The whole list is reread if it has at most this many stored rows; set by the nightly
   * run.
   */
  readonly wholeUpToRows?: number | undefined;
  readonly pageSize: number;
  /**
   * Whether an operator has confirmed that the source now serves a new network, none of
   * whose rows are stored.
   */
  readonly acceptNewNetwork?: boolean | undefined;
  /** Whether an operator has confirmed that the list lost many rows. */
  readonly acceptShrunk?: boolean | undefined;
}

/** One row of a list as the source sent it, with the cursor of its edge. */
export interface ListedRow {
  /**
   * The opaque cursor. It is sent back unchanged, and compared only with cursors of the
   * same page.
   */
  readonly cursor: string;
  /**
   * The natural key: the party's id, or `atBlock/hash/blockHash` as `checkpointKey`
   * writes it.
   */
  readonly key: string;
  /** Fields of the node that this version does not know; undefined if there are none. */
  readonly extra: Readonly<Record<string, unknown>> | undefined;
  /** The details of a row that could not be parsed; absent for any other row. */
  readonly odd?: OddRow;
}

/**
 * A row that could not be parsed. It keeps its position in the page under a key derived
 * from its bytes (`oddKey`), and is not stored with the other rows.
 */
export interface OddRow {
  /** The reason why the row could not be parsed, in words. */
  readonly because: string;
  /** The beginning of the row's JSON as sent, with secrets masked. */
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
   * Whether this is a request for a row or two that other work is waiting for. If it is
   * too slow or fails twice, it is abandoned within two minutes.
   */
  readonly isSmall?: boolean | undefined;
}

export interface Page {
  /** Rows in the order of the response, including those that cannot be parsed. */
  readonly rows: readonly ListedRow[];
  /** Whether the source promises more rows. This is a hint that proves nothing. */
  readonly hasNextPage: boolean;
  /** The cursors of `pageInfo`; undefined if the source left them out. */
  readonly startCursor: string | undefined;
  readonly endCursor: string | undefined;
  /**
   * The source's last block at the time of the response (`X-Block-*`), if it reported
   * one.
   */
  readonly blockHeight: bigint | undefined;
  readonly blockTime: Micros | undefined;
  /** The size of the response's JSON after decompression; absent in test doubles. */
  readonly bytes?: number;
  /** When the source responded, by the server's clock. */
  readonly answeredAt?: Micros | undefined;
  /**
   * Whether the response came from a mirror. Its block time is then exactly the instant
   * up to which its ledgers are proven.
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
   * @throws PermanentError `PAGE_TOO_LARGE` if the source refuses or cannot send a page
   *   of this size
   * @throws PermanentError `CURSOR_REFUSED` if it refuses the cursor (400, or repeated
   *   500 responses when a cursor was sent)
   * @throws PermanentError `PAGE_SHAPE` if the response is not a page; the message
   *   names the offending value
   * @throws RetryableError after the source's own retries are used up
   * @throws UnreachableError if no connection could be made
   */
  page(question: PageRequest, signal: AbortSignal): Promise<Page>;
  /** Requests one party by its id; undefined if the source does not know it (404). */
  party(id: string, signal: AbortSignal): Promise<ListedRow | undefined>;
}

/**
 * The store of resume points: Redis, or Postgres if Redis is not used. It may lose a
 * resume point or return an older one.
 */
export interface ResumePointStore {
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown, ttlMs: number): Promise<void>;
}
