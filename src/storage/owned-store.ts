/**
 * An object store that only its owner writes to. Ownership is checked before a write or a
 * removal, and again from time to time. If another mirror takes over the store, this one
 * stops within half a minute, even in the middle of a nightly run.
 */
import type { Readable } from 'node:stream';
import type { FileFacts } from '../files/byte-counter.ts';
import type { SecretState } from '../network/rotating-secret.ts';
import type {
  ListedObject,
  ObjectFacts,
  ObjectStore,
  Outcome,
  StoreCapabilities,
  StoredRange,
} from './object-store.ts';

/** How long a passed check stays valid. */
const CHECKED_FOR_MS = 30_000;
/** How long a passed check stays valid for removals, which cannot be undone. */
const CHECKED_FOR_REMOVAL_MS = 2_000;

/**
 * Checks that this process owns the store.
 * @throws the error that explains why this process must not write
 */
export type OwnershipCheck = (signal: AbortSignal) => Promise<void>;

/** Passes reads through, and checks ownership before every write and removal. */
export class OwnedStore implements ObjectStore {
  readonly #store: ObjectStore;
  readonly #check: OwnershipCheck;
  #checkedAtMs = Number.NEGATIVE_INFINITY;
  #checking: Promise<void> | undefined;

  constructor(store: ObjectStore, check: OwnershipCheck) {
    this.#store = store;
    this.#check = check;
  }

  get url(): string {
    return this.#store.url;
  }

  get secret(): SecretState | undefined {
    return this.#store.secret;
  }

  spoolPath(name: string): Promise<string> {
    return this.#store.spoolPath(name);
  }

  clearSpool(prefix: string): Promise<number> {
    return this.#store.clearSpool(prefix);
  }

  async publishFile(
    key: string,
    path: string,
    facts: FileFacts,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#requireOwnership(signal);
    await this.#store.publishFile(key, path, facts, signal);
  }

  async publishBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<void> {
    await this.#requireOwnership(signal);
    await this.#store.publishBytes(key, content, signal, spoolPrefix);
  }

  async putIfAbsent(
    key: string,
    content: Buffer,
    signal: AbortSignal,
    spoolPrefix?: string,
  ): Promise<Outcome> {
    await this.#requireOwnership(signal);
    return this.#store.putIfAbsent(key, content, signal, spoolPrefix);
  }

  async replaceBytes(
    key: string,
    content: Buffer,
    signal: AbortSignal,
  ): Promise<void> {
    await this.#requireOwnership(signal);
    await this.#store.replaceBytes(key, content, signal);
  }

  head(key: string, signal: AbortSignal): Promise<ObjectFacts | undefined> {
    return this.#store.head(key, signal);
  }

  read(
    key: string,
    signal: AbortSignal,
    range?: StoredRange,
  ): Promise<Readable> {
    return this.#store.read(key, signal, range);
  }

  list(prefix: string, signal: AbortSignal): AsyncIterable<ListedObject> {
    return this.#store.list(prefix, signal);
  }

  async remove(key: string, signal: AbortSignal): Promise<void> {
    await this.#requireOwnership(signal, CHECKED_FOR_REMOVAL_MS);
    await this.#store.remove(key, signal);
  }

  async removeAbandoned(
    olderThanMs: number,
    signal: AbortSignal,
  ): Promise<number> {
    await this.#requireOwnership(signal, CHECKED_FOR_REMOVAL_MS);
    return this.#store.removeAbandoned(olderThanMs, signal);
  }

  capabilities(signal: AbortSignal): Promise<StoreCapabilities> {
    return this.#store.capabilities(signal);
  }

  probe(signal: AbortSignal, stepMaxMs?: number): Promise<StoreCapabilities> {
    return this.#store.probe(signal, stepMaxMs);
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.#store[Symbol.asyncDispose]();
  }

  /**
   * Checks ownership once for all calls that arrive while the check is running. A refusal
   * is never cached.
   */
  async #requireOwnership(
    signal: AbortSignal,
    checkedForMs = CHECKED_FOR_MS,
  ): Promise<void> {
    if (performance.now() - this.#checkedAtMs < checkedForMs) return;
    this.#checking ??= this.#runCheck(signal).finally(() => {
      this.#checking = undefined;
    });
    await this.#checking;
  }

  async #runCheck(signal: AbortSignal): Promise<void> {
    await this.#check(signal);
    this.#checkedAtMs = performance.now();
  }
}
