/** The interface of the object store for the stages. */
import type { SecretState } from '../network/rotating-secret.ts';
import type { Readable } from 'node:stream';
import type { FileFacts } from '../files/byte-counter.ts';
import type { Micros } from '../time/time.ts';

/** How a store treats the condition "only if absent" on a write. */
export type ConditionSupport = 'honoured' | 'ignored' | 'refused';

/** How a store handles conditional writes. */
export interface StoreCapabilities {
  /** How the store answers one small conditional write. */
  readonly put: ConditionSupport;
  /**
   * How the store answers the last call of a conditional multipart upload. Objects
   * above 16 MiB need such uploads.
   */
  readonly multipart: ConditionSupport;
  /**
   * If several writers write different bytes under one key: whether exactly one of them
   * gets the answer that it wrote.
   */
  readonly hasOneWinner: boolean;
  /**
   * Other guarantees that the store lacks, in words for `doctor`; absent if no such gap
   * is known.
   */
  readonly weaknesses?: readonly string[];
}

/**
 * 'written': the key now holds these bytes, no matter which writer put them there.
 * 'present': it holds other bytes.
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
 * Immutable objects under keys relative to OBJECT_STORE_URL. Publishing is atomic: a
 * key is either absent or whole. Publishing the same bytes twice is accepted; other
 * bytes under the same key are an error. Each call waits up to 60 s for a store that is
 * unreachable or busy.
 */
export interface ObjectStore extends AsyncDisposable {
  /** The store's URL for messages and manifests, without credentials. */
  readonly url: string;
  /** The state of the store's credentials; undefined if it needs none. */
  readonly secret?: SecretState | undefined;

  /**
   * Returns the path at which to spool a file of this name: next to the store, on its
   * filesystem. It does not create the file itself.
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
   * @throws PermanentError `OBJECT_CONFLICT` if the key holds other bytes
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
   * @throws PermanentError `OBJECT_CONFLICT` if the key holds other bytes
   */
  publishBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<void>;

  /**
   * Writes small content if the key is absent: the commit of a log whose writers may
   * race.
   * @returns 'written' if the key now holds these bytes; an answer may have been lost,
   *   so the same bytes from an earlier call count. 'present' if it holds other bytes.
   *   Unless `capabilities` reports `put: 'honoured'` and `hasOneWinner`, two writers
   *   at once may both get 'written', so hold a lease
   */
  putIfAbsent(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<Outcome>;

  /**
   * Writes small content, whatever the key holds: for the few objects that name the
   * newest version of something. A reader sees the old bytes or the new bytes, never a
   * mixture. Nothing keeps two writers apart, so hold a lease.
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

  /** Returns the result of the last probe; the first call probes the store. */
  capabilities(signal: AbortSignal): Promise<StoreCapabilities>;

  /**
   * Tries the store out now: writes, reads, lists, removes and uploads a part below
   * `probe/`.
   * @param stepMaxMs how long one step may take; a minute by default
   * @throws PermanentError that names the refused or failed operation
   * @throws UnreachableError if a step gets no answer
   */
  probe(signal: AbortSignal, stepMaxMs?: number): Promise<StoreCapabilities>;
}

/** Whether the store itself prevents a second write to a key, without a lease. */
export function isWrittenOnce(capabilities: StoreCapabilities): boolean {
  const { put, multipart, hasOneWinner } = capabilities;
  return put === 'honoured' && multipart === 'honoured' && hasOneWinner;
}
