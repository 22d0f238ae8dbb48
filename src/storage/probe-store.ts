/**
 * Tests a store with objects under `probe/`: permissions, reads and writes, multipart
 * uploads, conditional writes, and a race between several writers.
 */
import { randomUUID } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { PermanentError, UnreachableError } from '../errors/errors.ts';
import { nowMicros } from '../time/time.ts';
import { withTimeout } from '../concurrency/timeouts.ts';
import type {
  ConditionSupport,
  ObjectStore,
  StoreCapabilities,
} from './object-store.ts';

const PROBE_PREFIX = 'probe/';
/**
 * The age at which an object under `probe/` is considered a leftover of a killed process.
 */
const ABANDONED_MICROS = 3_600_000_000n;
const STEP_MAX_MS = 60_000;
const TEXT = 'ledger-mirror tries this store out\n';
const RACING_WRITERS = [1, 2, 3, 4];

/**
 * Sends one conditional write for a key that may already exist, and returns how the store
 * responds.
 */
type TryWrite = (
  key: string,
  content: Buffer,
  signal: AbortSignal,
) => Promise<ConditionSupport>;

/**
 * The operations that a probe needs from a kind of store, in addition to its ordinary
 * calls.
 */
export interface StoreProbe {
  readonly tryPut: TryWrite;
  readonly tryInParts: TryWrite;
  /** Returns the guarantees that the writes so far have shown to be missing. */
  readonly weaknesses?: () => readonly string[];
  /**
   * Classifies an error.
   * @param what the action and its key: "publish ledger/…"
   */
  readonly mapError: (what: string, error: unknown) => Error;
}

/**
 * Tests the store, and removes the objects that it wrote in doing so.
 * @throws PermanentError saying which operation was refused
 * @throws UnreachableError if a step times out
 */
export async function probeStore(
  store: ObjectStore,
  kind: StoreProbe,
  signal: AbortSignal,
  stepMaxMs = STEP_MAX_MS,
): Promise<StoreCapabilities> {
  const probe = new Probe(store, kind, signal, stepMaxMs);
  try {
    await probe.checkReadsAndLists();
    const capabilities = await probe.tryConditions();
    await probe.removeAll();
    const weaknesses = kind.weaknesses?.() ?? [];
    return weaknesses.length === 0
      ? capabilities
      : { ...capabilities, weaknesses };
  } catch (error) {
    // Objects that cannot be removed now are removed by a later probe.
    await probe.removeAll().catch(() => undefined);
    throw error;
  }
}

class Probe {
  readonly #store: ObjectStore;
  readonly #kind: StoreProbe;
  readonly #signal: AbortSignal;
  readonly #stepMaxMs: number;
  readonly #written = probeKey('one');
  readonly #raced = probeKey('raced');
  /** The keys to remove, including those of killed processes. */
  readonly #keys = [this.#written, this.#raced];

  constructor(
    store: ObjectStore,
    kind: StoreProbe,
    signal: AbortSignal,
    stepMaxMs: number,
  ) {
    this.#store = store;
    this.#kind = kind;
    this.#signal = signal;
    this.#stepMaxMs = stepMaxMs;
  }

  async checkReadsAndLists(): Promise<void> {
    const key = this.#written;
    await this.#step('write an object', (signal) =>
      this.#store.publishBytes(key, Buffer.from(TEXT), signal),
    );

    const range = { start: 7n, end: 13n };
    const read = await this.#step('read a range of an object', async (signal) =>
      buffer(await this.#store.read(key, signal, range)),
    );
    if (read.toString() !== TEXT.slice(7, 13)) {
      throw unusable('it returns bytes that differ from those written');
    }

    const isListed = await this.#step('list objects', (signal) =>
      this.#list(signal),
    );
    if (!isListed) throw unusable('it does not list what was written');
  }

  /**
   * Lists the objects under `probe/`, and marks those of killed processes for removal.
   * @returns whether the written object is listed
   */
  async #list(signal: AbortSignal): Promise<boolean> {
    let isListed = false;
    for await (const { key, modifiedAt } of this.#store.list(
      PROBE_PREFIX,
      signal,
    )) {
      isListed ||= key === this.#written;
      const isAbandoned = modifiedAt < nowMicros() - ABANDONED_MICROS;
      if (isAbandoned) this.#keys.push(key);
    }
    return isListed;
  }

  async tryConditions(): Promise<StoreCapabilities> {
    const other = Buffer.from('other bytes\n');
    const put = await this.#step('write an object that is there', (signal) =>
      this.#kind.tryPut(this.#written, other, signal),
    );
    const multipart = await this.#step('send an object in parts', (signal) =>
      this.#kind.tryInParts(this.#written, other, signal),
    );
    const answers = await this.#step(
      'write one object from several sides',
      (signal) => {
        const writes = RACING_WRITERS.map((nth) =>
          this.#kind.tryPut(
            this.#raced,
            Buffer.from(`writer ${nth}\n`),
            signal,
          ),
        );
        return Promise.all(writes);
      },
    );
    // A store that ignores the condition tells every writer that its write succeeded.
    const winners = answers.filter((answer) => answer !== 'honoured');
    return { put, multipart, hasOneWinner: winners.length === 1 };
  }

  async removeAll(): Promise<void> {
    for (const key of this.#keys) {
      await this.#step('remove an object', (signal) =>
        this.#store.remove(key, signal),
      );
    }
  }

  /**
   * Runs a step. A step that takes longer than `stepMaxMs` is abandoned; its work may
   * still finish.
   */
  async #step<Result>(
    what: string,
    work: (signal: AbortSignal) => Promise<Result>,
  ): Promise<Result> {
    this.#signal.throwIfAborted();
    try {
      return await withTimeout(
        this.#stepMaxMs,
        (limit) => work(AbortSignal.any([this.#signal, limit])),
        () => this.#timeoutError(what),
      );
    } catch (error) {
      throw this.#kind.mapError(what, error);
    }
  }

  #timeoutError(what: string): UnreachableError {
    const seconds = this.#stepMaxMs / 1000;
    return new UnreachableError(
      `Cannot ${what} in ${this.#store.url}: no answer within ${seconds} s; ` +
        'check that the store is up, and what is on the way to it',
      { code: 'OBJECT_STORE_UNREACHABLE', meta: { step: what, attempts: 1 } },
    );
  }
}

function probeKey(name: string): string {
  return `${PROBE_PREFIX}${randomUUID()}.${name}`;
}

function unusable(state: string): PermanentError {
  return new PermanentError(`Cannot use the object store: ${state}`, {
    code: 'OBJECT_STORE_CONFIGURATION',
  });
}
