/**
 * A mirror for the fronts: its API with two ledgers and without a database, and clients
 * that pause. Also the examples of docs/deployment.md that the fronts are tested with.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { get, type IncomingMessage } from 'node:http';
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { listen, type Listening } from '../../src/api/server/server.ts';
import { readingOf } from '../support/ledger-reading.ts';
import { apiWithoutDatabase, EMPTY_STATUS, jobsOf } from '../api/mirror.ts';

export const TOKEN = 'correct-horse-battery';
const DOCS = resolve(import.meta.dirname, '../../docs/deployment.md');
export const UPSTREAM = '127.0.0.1:8080';
export const ID = '018f4e5e-0000-7000-8000-000000000000';
export const PARTY = 'ab'.repeat(32);
const LINE = Buffer.from(`${'x'.repeat(1_023)}\n`);
const LINES = 2_000;
export const CSV = Buffer.concat(Array.from({ length: LINES }, () => LINE));
/** A ledger that no buffer on the way can hold, and that does not shrink with gzip. */
export const LARGE = 'cd'.repeat(32);
const LARGE_CHUNKS = 1_024;
const LARGE_CHUNK = randomBytes(64 * 1_024);
export const LARGE_BYTES = LARGE_CHUNKS * LARGE_CHUNK.length;

/** Returns the text of an example of docs/deployment.md, by its language and its index. */
export async function exampleOf(
  language: string,
  index: number,
): Promise<string> {
  const blocks = (await readFile(DOCS, 'utf8')).matchAll(
    /^```(\w+)\n(.*?)^```/gms,
  );
  const found = [...blocks].filter(([, name]) => name === language)[index];
  if (found?.[2]?.includes(UPSTREAM) !== true)
    throw new Error(`docs/deployment.md has no such example of ${language}`);
  return found[2];
}

/** One reading of the large ledger. */
interface Reading {
  /** How many chunks it has handed out. */
  chunks: number;
  isOver: boolean;
}

export interface Mirror extends Listening {
  readonly readings: readonly Reading[];
  /** Whether a reading of the large ledger hands out nothing more. */
  standsStill(index: number): Promise<boolean>;
}

/** Starts an API with one order that is over, a ledger, and a large one. */
export async function startMirror(basePath: string): Promise<Mirror> {
  const readings: Reading[] = [];
  async function* largeRows(): AsyncGenerator<Buffer> {
    const reading: Reading = { chunks: 0, isOver: false };
    readings.push(reading);
    try {
      for (; reading.chunks < LARGE_CHUNKS; reading.chunks += 1)
        yield LARGE_CHUNK;
    } finally {
      reading.isOver = true;
    }
  }

  const now = new Date().toISOString();
  const run = {
    runId: ID,
    kind: 'export',
    subject: PARTY,
    params: {},
    verdict: 'complete',
    evidence: {},
    queuedAt: now,
    finishedAt: now,
  };
  const running = { ...run, state: 'running', verdict: null };
  const server = await apiWithoutDatabase({
    token: TOKEN,
    basePath,
    jobs: jobsOf({
      runs: {
        get: async () => ({ ...run, state: 'done' }) as never,
        list: async () => [],
      },
      stages: {
        openLedger: async ({ partyId }) =>
          partyId === LARGE
            ? readingOf(largeRows)
            : readingOf(
                async function* () {
                  yield CSV.subarray(0, 700_001);
                  yield CSV.subarray(700_001);
                },
                { measure: async () => BigInt(CSV.length) },
              ),
      },
    }),
    status: { ...EMPTY_STATUS, run: async () => running as never },
  });
  const address = { host: '127.0.0.1', port: 0, token: TOKEN };
  const listening = await listen(server, address);
  return {
    url: listening.url,
    readings,
    standsStill: async (index) => {
      const before = readings[index]?.chunks ?? 0;
      await sleep(200);
      return before > 0 && readings[index]?.chunks === before;
    },
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
}

/** A client that has stopped reading in the middle of an answer. */
interface PausedReader {
  /** Reads the rest, and returns the number of all bytes. */
  readOn(): Promise<number>;
}

/** Reads the first bytes of an answer, and then nothing until it is told to read on. */
export async function openPausedReader(
  url: string,
  headers: Readonly<Record<string, string>> = {
    authorization: `Bearer ${TOKEN}`,
  },
): Promise<PausedReader> {
  const response = await new Promise<IncomingMessage>((settle, reject) => {
    get(url, { headers }, settle).on('error', reject);
  });
  expect(response.statusCode).toBe(200);
  let bytes = 0;
  response.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
  });
  // It may be cut off when nobody waits for it any more.
  response.on('error', () => undefined);
  await once(response, 'data');
  response.pause();
  return {
    readOn: async () => {
      const ended = once(response, 'end');
      response.resume();
      await ended;
      return bytes;
    },
  };
}
