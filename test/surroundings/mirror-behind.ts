/**
 * A mirror for the fronts: its API with two ledgers and without a database, and clients
 * that pause. Also the examples of docs/deployment.md that the fronts are tested with.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { get, type IncomingMessage } from 'node:http';
import { resolve } from 'node:path';
import { expect } from 'vitest';
import { listen, type Listening } from '../../src/api/server/server.ts';
import { readingOf } from '../support/ledger-reading.ts';
import {
  type WatchedReadings,
  watchReadings,
} from '../support/watched-readings.ts';
import {
  apiWithoutDatabase,
  doneExport,
  EMPTY_STATUS,
  jobsOf,
} from '../api/mirror.ts';

export const TOKEN = 'correct-horse-battery';
/** The headers of a form that a browser sends. */
export const FORM = { 'content-type': 'application/x-www-form-urlencoded' };
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

/** Returns an example of docs/deployment.md, by its language and its index. */
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

export interface Mirror extends Listening {
  /** The readings of the large ledger. */
  readonly readings: WatchedReadings['readings'];
  readonly standsStill: WatchedReadings['standsStill'];
}

/** Starts an API with one order that is over, a ledger, and a large one. */
export async function startMirror(basePath: string): Promise<Mirror> {
  const large = watchReadings(() =>
    Array.from({ length: LARGE_CHUNKS }, () => LARGE_CHUNK),
  );
  const done = doneExport(ID, PARTY);
  const running = { ...done, state: 'running', verdict: null };
  const server = await apiWithoutDatabase({
    token: TOKEN,
    basePath,
    jobs: jobsOf({
      runs: {
        get: async () => done as never,
        list: async () => [],
      },
      stages: {
        openLedger: async ({ partyId }) =>
          partyId === LARGE
            ? readingOf(large.rows)
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
    readings: large.readings,
    standsStill: large.standsStill,
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
}

/** A client that has stopped reading in the middle of an answer. */
interface PausedReader {
  /** Reads the rest, and returns the number of all bytes. */
  readOn(): Promise<number>;
}

/** Reads the first bytes of an answer, and the rest only when `readOn` is called. */
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

/** Sends a request as a client that is logged in. */
type Ask = (path: string, init?: RequestInit) => Promise<Response>;

export const FOREIGN_ORIGIN = 'https://evil.example';

/** Logs in from a page of a foreign origin, and returns the answer. */
export async function logInFromElsewhere(
  ask: Ask,
): Promise<{ readonly status: number; readonly message: string }> {
  const answer = await ask('/login', {
    method: 'POST',
    headers: { ...FORM, origin: FOREIGN_ORIGIN },
    body: `token=${TOKEN}`,
  });
  const { message } = (await answer.json()) as { message: string };
  return { status: answer.status, message };
}

/** What came of a download, of the rest of it, and of the mirrored export. */
interface Downloads {
  readonly contentLength: string | null;
  readonly isWhole: boolean;
  readonly restStatus: number;
  readonly isRest: boolean;
  readonly isMirrored: boolean;
}

/** The downloads of a front that changes nothing. */
export const AS_STORED = {
  isWhole: true,
  restStatus: 206,
  isRest: true,
  isMirrored: true,
} as const satisfies Partial<Downloads>;

/** Downloads the ledger of the order, the rest of it from the middle, and the export. */
export async function downloadAll(ask: Ask): Promise<Downloads> {
  const path = `/mirror/exports/${ID}/download`;
  const start = 1_500_000;
  const whole = await ask(path);
  const isWhole = await hasBytes(whole, CSV);
  const rest = await ask(path, { headers: { range: `bytes=${start}-` } });
  const mirrored = await ask(`/api/v2/ledgerentry/export?partyId=${PARTY}`);
  return {
    contentLength: whole.headers.get('content-length'),
    isWhole,
    restStatus: rest.status,
    isRest: await hasBytes(rest, CSV.subarray(start)),
    isMirrored: await hasBytes(mirrored, CSV),
  };
}

async function hasBytes(answer: Response, wanted: Buffer): Promise<boolean> {
  return Buffer.from(await answer.arrayBuffer()).equals(wanted);
}

/** Returns what an open stream of events has sent once the first event is there. */
export async function readFirstEvent(ask: Ask): Promise<string> {
  const gone = new AbortController();
  const events = await ask(`/mirror/exports/${ID}/events`, {
    signal: gone.signal,
  });
  const reader = events.body?.pipeThrough(new TextDecoderStream());
  let text = '';
  for await (const chunk of reader ?? []) {
    text += chunk;
    if (text.includes('data:')) break;
  }
  gone.abort();
  return text;
}
