/** What the stages need from the object store. */
import type { Readable } from 'node:stream';
import type { FileFacts } from '../files/byte-counter.ts';
import type { Micros } from '../time/time.ts';

/** How a store treats the condition "only if absent" on a write. */
export type ConditionSupport = 'honoured' | 'ignored' | 'refused';

/** What a store does with conditional writes. */
export interface StoreCapabilities {
  /** With the condition on one small write. */
  readonly put: ConditionSupport;
  /**
   * With the condition on the last call of an upload in parts, which objects above 16 MiB
   * need.
   */
  readonly multipart: ConditionSupport;
  /**
   * Of several writers of different bytes under one key, exactly one is told that it
   * wrote.
   */
  readonly hasOneWinner: boolean;
  /** What else the store does not do, in words for `doctor`; absent if nothing is known. */
  readonly weaknesses?: readonly string[];
}

/**
 * 'written': these bytes lie under the key now, no matter who wrote them. 'present': other
 * bytes do.
 */
export type Outcome = 'written' | 'present';

/** An object as a listing shows it. */
export interface ListedObject {
  readonly key: string;
  /** Size as it is stored. */
  readonly bytes: bigint;
  readonly modifiedAt: Micros;
}

/** A range of an object's stored bytes. */
export interface StoredRange {
  readonly start: bigint;
  /** Exclusive. */
  readonly end: bigint;
}

/** What is known of an object without reading it. */
export interface ObjectFacts {
  /** Size as it is stored. */
  readonly bytes: bigint;
  /** Hex; undefined if it is not known without reading the object. */
  readonly sha256: string | undefined;
}

/**
 * Immutable objects under keys relative to OBJECT_STORE_URL. Publishing is atomic: a key
 * is either absent or whole. Publishing the same bytes twice is accepted; other bytes
 * under the same key are an error. Each call waits by itself for a store that cannot be
 * reached or is busy (60 s).
 */
export interface ObjectStore extends AsyncDisposable {
  /** For messages and manifests; without credentials. */
  readonly url: string;

  /**
   * Returns where to spool a file of this name: beside the store, on its filesystem. The
   * file itself is not made.
   */
  spoolPath(name: string): Promise<string>;

  /**
   * Removes the spool files whose names begin with `prefix`, which a dead worker left.
   * @returns how many were removed
   */
  clearSpool(prefix: string): Promise<number>;

  /**
   * Makes the spooled file visible under `key`, durably. The caller removes the spool
   * file.
   * @throws PermanentError `OBJECT_CONFLICT` if other bytes lie under the key
   */
  publishFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<void>;

  /**
   * Publishes small content, such as a manifest.
   * @param spoolPrefix names what a killed process may leave in the spool, for
   *   `clearSpool`
   * @throws PermanentError `OBJECT_CONFLICT` if other bytes lie under the key
   */
  publishBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<void>;

  /**
   * Writes small content if nothing lies under the key: the commit of a log whose writers
   * may race.
   * @returns 'written' if these bytes lie under the key now; an answer may have been
   *   lost, so the same bytes of an earlier call count. 'present' if other bytes do.
   *   Unless `capabilities` reports `put: 'honoured'` and `hasOneWinner`, two writers at
   *   once may both get 'written': hold a lease
   */
  putIfAbsent(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<Outcome>;

  /**
   * Writes small content, whatever lies under the key: for the few objects that say what
   * is newest. A reader sees the old bytes or the new ones, never a part. Nothing keeps
   * two writers apart: hold a lease.
   */
  replaceBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<void>;

  /** @returns undefined if nothing lies under the key */
  head(key: string, signal: AbortSignal): Promise<ObjectFacts | undefined>;

  /**
   * Reads the stored bytes as they are (compressed).
   * @throws PermanentError `OBJECT_MISSING`
   */
  read(
    key: string,
    signal: AbortSignal,
    range?: StoredRange,
  ): Promise<Readable>;

  /** Lists the objects below a prefix, in the order of their keys. */
  list(prefix: string, signal: AbortSignal): AsyncIterable<ListedObject>;

  /**
   * Removes an object; an absent key is accepted. Only garbage collection and the lake's
   * compaction call this.
   */
  remove(key: string, signal: AbortSignal): Promise<void>;

  /**
   * Removes the spool files and unfinished uploads of dead processes that are older than
   * `olderThanMs`.
   * @returns how many were removed
   */
  removeAbandoned(olderThanMs: number, signal: AbortSignal): Promise<number>;

  /** Returns what `probe` found last; the first call probes the store. */
  capabilities(signal: AbortSignal): Promise<StoreCapabilities>;

  /**
   * Tries the store out now: writes, reads, lists, removes and sends a part below
   * `probe/`.
   * @param stepMaxMs how long one step may take; a minute by default
   * @throws PermanentError naming what the store refused or could not do
   * @throws UnreachableError if a step gets no answer
   */
  probe(signal: AbortSignal, stepMaxMs?: number): Promise<StoreCapabilities>;
}

/** Whether the store itself keeps a second writer of a key out, without a lease. */
export function isWrittenOnce(capabilities: StoreCapabilities): boolean {
  const { put, multipart, hasOneWinner } = capabilities;
  return put === 'honoured' && multipart === 'honoured' && hasOneWinner;
}
