/** The object store's interface, as the stages use it. */
import type { SecretState } from '../network/rotating-secret.ts';
import type { Readable } from 'node:stream';
import type { FileFacts } from '../files/byte-counter.ts';
import type { Micros } from '../time/time.ts';

/** How a store treats the condition "only if absent" on a write. */
export type ConditionSupport = 'honoured' | 'ignored' | 'refused';

/** How a store handles conditional writes. */
export interface StoreCapabilities {
  /** How the store responds to one small conditional write. */
  readonly put: ConditionSupport;
  /**
   * How the store responds to the last call of a conditional multipart upload, as used
   * for objects above 16 MiB.
   */
  readonly multipart: ConditionSupport;
  /**
   * Whether, if several writers write different bytes to the same key, exactly one of
   * them is told that its write succeeded.
   */
  readonly hasOneWinner: boolean;
  /**
   * Other guarantees that the store does not give, worded for `doctor`; absent if none
   * are known to be missing.
   */
  readonly weaknesses?: readonly string[];
}

/**
 * 'written': the key now has these bytes, no matter which writer put them there.
 * 'present': it has different bytes.
 */
export type Outcome = 'written' | 'present';

/** An object in a listing. */
export interface ListedObject {
  readonly key: string;
  /** The number of stored bytes. */
  readonly bytes: bigint;
  readonly modifiedAt: Micros;
}

/** A range of an object's stored bytes. */
export interface StoredRange {
  readonly start: bigint;
  /** The end, exclusive. */
  readonly end: bigint;
}

/** Facts about an object that are known without reading it. */
export interface ObjectFacts {
  /** The number of stored bytes. */
  readonly bytes: bigint;
  /**
   * The SHA-256 as hex digits; undefined if it is not known without reading the object.
   */
  readonly sha256: string | undefined;
}

/**
 * Immutable objects under keys relative to OBJECT_STORE_URL. Publishing is atomic: a key
 * is either absent or complete. Publishing the same bytes again is allowed; different
 * bytes under the same key are an error. Each call waits up to 60 s for a store that is
 * unreachable or busy.
 */
export interface ObjectStore extends AsyncDisposable {
  /** The store's URL for messages and manifests, without credentials. */
  readonly url: string;
  /** The state of the store's credentials; undefined if it needs none. */
  readonly secret?: SecretState | undefined;

  /**
   * Returns the path at which to spool a file of this name, next to the store and on its
   * filesystem. Does not create the file.
   */
  spoolPath(name: string): Promise<string>;

  /**
   * Removes the spool files that a dead worker left and whose names begin with `prefix`.
   * @returns the number of files removed
   */
  clearSpool(prefix: string): Promise<number>;

  /**
   * Durably makes the spooled file visible under `key`. The caller removes the spool
   * file.
   * @throws PermanentError `OBJECT_CONFLICT` if the key has different bytes
   */
  publishFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<void>;

  /**
   * Publishes small content, such as a manifest.
   * @param spoolPrefix prefix of the spool file's name, by which `clearSpool` finds the
   *   files of a killed process
   * @throws PermanentError `OBJECT_CONFLICT` if the key has different bytes
   */
  publishBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<void>;

  /**
   * Writes small content if the key is absent, such as a commit to a log whose writers
   * may race.
   * The caller must hold a lease unless `capabilities` reports `put: 'honoured'` and
   * `hasOneWinner`: otherwise, two concurrent writers may both get 'written'.
   * @returns 'written' if the key now has these bytes, even if an earlier call wrote
   *   them, because the response to that call may have been lost; 'present' if the key
   *   has different bytes
   */
  putIfAbsent(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<Outcome>;

  /**
   * Writes small content, overwriting whatever is stored under the key. This is for the
   * few objects that point to the newest version of something. A reader sees the old
   * bytes or the new bytes, never a mixture. Concurrent writers are not excluded, so hold
   * a lease.
   */
  replaceBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<void>;

  /**
   * Reads an object's facts.
   * @returns undefined if the key is absent
   */
  head(key: string, signal: AbortSignal): Promise<ObjectFacts | undefined>;

  /**
   * Reads the stored (compressed) bytes.
   * @throws PermanentError `OBJECT_MISSING`
   */
  read(
    key: string,
    signal: AbortSignal,
    range?: StoredRange,
  ): Promise<Readable>;

  /** Lists the objects under a prefix, in key order. */
  list(prefix: string, signal: AbortSignal): AsyncIterable<ListedObject>;

  /**
   * Removes an object; it is not an error if the key is absent. Only garbage collection
   * and the lake's compaction call this.
   */
  remove(key: string, signal: AbortSignal): Promise<void>;

  /**
   * Removes spool files and unfinished uploads of dead processes if they are older than
   * `olderThanMs`.
   * @returns the number of files and uploads removed
   */
  removeAbandoned(olderThanMs: number, signal: AbortSignal): Promise<number>;

  /** Returns the result of the last probe; the first call probes the store. */
  capabilities(signal: AbortSignal): Promise<StoreCapabilities>;

  /**
   * Tests the store now: writes, reads, lists and removes under `probe/`, and uploads a
   * part.
   * @param stepMaxMs timeout of one step; a minute by default
   * @throws PermanentError saying which operation was refused or failed
   * @throws UnreachableError if a step gets no response
   */
  probe(signal: AbortSignal, stepMaxMs?: number): Promise<StoreCapabilities>;
}

/** Whether the store itself prevents a second write to a key, without a lease. */
export function isWrittenOnce(capabilities: StoreCapabilities): boolean {
  const { put, multipart, hasOneWinner } = capabilities;
  return put === 'honoured' && multipart === 'honoured' && hasOneWinner;
}
