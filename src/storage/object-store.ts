/** What the stages need from the object store. */
import type { Readable } from 'node:stream';
import type { FileFacts } from '../files/byte-counter.ts';
import type { Micros } from '../time/time.ts';

/** How a store treats the condition "only if absent" on a write. */
export type ConditionSupport = 'honoured' | 'ignored' | 'refused';

export interface StoreCapabilities {
  /** On one small write. */
  readonly put: ConditionSupport;
  /** On the last call of an upload in parts: objects above 16 MiB. */
  readonly multipart: ConditionSupport;
  /** Of concurrent writers of different bytes under one key, exactly one was told that it wrote. */
  readonly hasOneWinner: boolean;
}

/** 'written' where the bytes lie under the key now, whoever put them; 'present' where others do. */
export type Outcome = 'written' | 'present';

export interface ListedObject {
  readonly key: string;
  readonly bytes: bigint;
  readonly modifiedAt: Micros;
}

/**
 * Immutable objects under keys relative to OBJECT_STORE_URL. Publishing is atomic: a key is either
 * absent or whole. Publishing the same bytes twice is fine; other bytes under the same key are an error.
 * A store that cannot be reached, or is busy, is waited for by each call itself (60 s).
 */
export interface ObjectStore extends AsyncDisposable {
  /** For messages and manifests; no credentials. */
  readonly url: string;
  /** Where to spool a file of this name: beside the store, on its filesystem. The file is not made. */
  spoolPath(name: string): Promise<string>;
  /** Removes the spool files whose names begin with `prefix`: what a dead worker left. @returns how many */
  clearSpool(prefix: string): Promise<number>;
  /** Makes the spooled file visible under `key`, durably. Leaves the spool file to the caller. */
  publishFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<void>;
  /**
   * The same for small content (a manifest).
   * @param spoolPrefix of what it may leave in the spool where the process is killed, for `clearSpool`
   */
  publishBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<void>;
  /**
   * Writes small content where nothing lies: the commit of a log whose writers may race.
   * @returns 'written' where these bytes lie under the key now (an answer may have been lost: the same
   *   bytes of an earlier call count), 'present' where other bytes do. Where `capabilities` does not say
   *   `put: 'honoured'` and `hasOneWinner`, two writers at once may both be told 'written': hold a lease.
   */
  putIfAbsent(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<Outcome>;
  /** Size and, where it can be told cheaply, SHA-256 (hex) of what is stored; undefined where absent. */
  head(
    key: string,
    signal: AbortSignal,
  ): Promise<{ bytes: bigint; sha256: string | undefined } | undefined>;
  /** Stored bytes as they are (compressed); `range` in bytes, end exclusive. @throws PermanentError `OBJECT_MISSING` */
  read(
    key: string,
    signal: AbortSignal,
    range?: { start: bigint; end: bigint },
  ): Promise<Readable>;
  /** Keys below a prefix, in order. */
  list(prefix: string, signal: AbortSignal): AsyncIterable<ListedObject>;
  /** Only the janitor and the lake's compaction call this. Absent keys are fine. */
  remove(key: string, signal: AbortSignal): Promise<void>;
  /** Removes spool files and unfinished uploads of dead processes, older than `olderThanMs`. @returns how many */
  sweep(olderThanMs: number, signal: AbortSignal): Promise<number>;
  /** What `tryOut` found; tried once a store, at the first call. */
  capabilities(signal: AbortSignal): Promise<StoreCapabilities>;
  /**
   * Writes, reads, lists, removes and sends a part below `probe/`, now.
   * @param stepMaxMs how long one step may take; a minute by default
   * @throws what the store refused or could not do, named; UnreachableError where a step gets no answer
   */
  tryOut(signal: AbortSignal, stepMaxMs?: number): Promise<StoreCapabilities>;
}

/** Whether a second writer of a key is told so, without a lease. */
export function isWrittenOnce({
  put,
  multipart,
  hasOneWinner,
}: StoreCapabilities): boolean {
  return put === 'honoured' && multipart === 'honoured' && hasOneWinner;
}
