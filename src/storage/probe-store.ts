/** What a store really does with reads and writes, tried out below `probe/`: rights, parts, conditions, a race. */
import { randomUUID } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { PermanentError, UnreachableError } from '../errors/errors.ts';
import { nowMicros } from '../time/time.ts';
import { withTimeout } from '../concurrency/timeouts.ts';
import type { ConditionSupport, ObjectStore, StoreCapabilities } from './object-store.ts';

const PROBE_PREFIX = 'probe/';
/** Of probes whose process was killed. */
const LEFT_BEHIND_MICROS = 3_600_000_000n;
const STEP_MAX_MS = 60_000;
const TEXT = 'ledger-mirror tries this store out\n';

/** One conditional write as the store answers it, where something may lie under the key. */
type TryWrite = (
  key: string,
  content: Buffer,
  signal: AbortSignal,
) => Promise<ConditionSupport>;

export interface StoreProbe {
  readonly tryPut: TryWrite;
  readonly tryInParts: TryWrite;
  /** @param what was done, and to which key: "publish ledger/…" */
  readonly mapError: (what: string, error: unknown) => Error;
}

/** @throws what the store refused, classified; UnreachableError where a step gets no answer in time */
export async function probeStore(
  store: ObjectStore,
  { tryPut, tryInParts, mapError }: StoreProbe,
  signal: AbortSignal,
  stepMaxMs = STEP_MAX_MS,
): Promise<StoreCapabilities> {
  // A step that outlasts `stepMaxMs` is left to itself.
  const step = async <Result>(
    what: string,
    work: (either: AbortSignal) => Promise<Result>,
  ) => {
    signal.throwIfAborted();
    const late = () =>
      new UnreachableError(
        `Cannot ${what} in ${store.url}: no answer within ${stepMaxMs / 1000} s; check that the store is up, and what lies in between`,
        { code: 'OBJECT_STORE_UNREACHABLE', meta: { step: what, attempts: 1 } },
      );
    return withTimeout(
      stepMaxMs,
      (limit) => work(AbortSignal.any([signal, limit])),
      late,
    ).catch((error: unknown) => {
      throw mapError(what, error);
    });
  };
  const nameProbe = (name: string) => `${PROBE_PREFIX}${randomUUID()}.${name}`;
  const one = nameProbe('one');
  const raced = nameProbe('raced');
  const made = [one, raced];
  const removeAll = async (): Promise<void> => {
    for (const key of made)
      await step('remove an object', (either) => store.remove(key, either));
  };
  try {
    await step('write an object', (either) =>
      store.publishBytes(one, Buffer.from(TEXT), either),
    );
    const read = await step('read a range of an object', async (either) =>
      buffer(await store.read(one, either, { start: 7n, end: 13n })),
    );
    if (read.toString() !== TEXT.slice(7, 13))
      throw unusable('it reads other bytes than were written');
    const isListed = await step('list objects', async (either) => {
      let isFound = false;
      for await (const { key, modifiedAt } of store.list(PROBE_PREFIX, either)) {
        isFound ||= key === one;
        if (modifiedAt < nowMicros() - LEFT_BEHIND_MICROS) made.push(key);
      }
      return isFound;
    });
    if (!isListed) throw unusable('it does not list what was written');
    const other = Buffer.from('other bytes\n');
    const put = await step('write an object that is there', (either) =>
      tryPut(one, other, either),
    );
    const multipart = await step('send an object in parts', (either) =>
      tryInParts(one, other, either),
    );
    const told = await step('write one object from several sides', (either) =>
      Promise.all(
        [1, 2, 3, 4].map((nth) => tryPut(raced, Buffer.from(`writer ${nth}\n`), either)),
      ),
    );
    await removeAll();
    // Without a condition, each writer is told that it wrote.
    return {
      put,
      multipart,
      hasOneWinner: told.filter((answer) => answer !== 'honoured').length === 1,
    };
  } catch (error) {
    // A later trial removes what cannot be removed now.
    await removeAll().catch(() => undefined);
    throw error;
  }
}

function unusable(state: string): PermanentError {
  return new PermanentError(`Cannot use the object store: ${state}`, {
    code: 'OBJECT_STORE_CONFIGURATION',
  });
}
