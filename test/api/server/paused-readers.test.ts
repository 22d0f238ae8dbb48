/** Clients that stop reading in the middle of a long answer, for minutes or forever. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { type HttpTimeouts, listen } from '../../../src/api/server/server.ts';
import { readingOf } from '../../support/ledger-reading.ts';
import { waitFor } from '../../support/wait-for.ts';
import { watchReadings } from '../../support/watched-readings.ts';
import {
  apiWithoutDatabase,
  doneExport,
  EMPTY_STATUS,
  jobsOf,
} from '../mirror.ts';

const ID = '018f4e5e-0000-7000-8000-000000000000';
const PARTY = 'ab'.repeat(32);
const CHUNK_BYTES = 64 * 1_024;
const CHUNKS = 1_024;
/** What may be on the way to a reader that stands still; far less than the answer. */
const AHEAD_BYTES_MAX = (CHUNKS * CHUNK_BYTES) / 2;
const ROUTES = [
  ['download', `/mirror/exports/${ID}/download`],
  ['export', `/api/v2/ledgerentry/export?partyId=${PARTY}`],
] as const;

test.each(ROUTES)(
  'a reader of the %s that pauses in the middle gets every byte, and delays nobody',
  async (_, path) => {
    await using world = await startWorld();
    const response = await world.ask(path);
    const hash = createHash('sha256');
    const [first] = (await once(response, 'data')) as [Buffer];
    response.pause();
    hash.update(first);
    await waitFor(() => world.standsStill(0), {
      what: 'the reading to stand still',
    });
    expect(world.readings[0]?.bytes).toBeLessThan(AHEAD_BYTES_MAX);

    expect((await fetch(`${world.url}/healthz`)).status).toBe(200);
    const other = await fetch(world.url + path);
    expect(await hashOf(other.body ?? [])).toBe(WHOLE);
    expect(world.readings[0]?.bytes).toBeLessThan(AHEAD_BYTES_MAX);

    for await (const chunk of response) hash.update(chunk as Buffer);
    expect(hash.digest('hex')).toBe(WHOLE);
    expect(world.readings.map(({ isOver }) => isOver)).toEqual([true, true]);
  },
);

test.each(ROUTES)(
  'a reader of the %s that never comes back is cut off, and its reading ends',
  async (_, path) => {
    await using world = await startWorld({ idleTimeout: 200 });
    const response = await world.ask(path);
    await once(response, 'data');
    response.pause();
    await waitFor(() => world.readings[0]?.isOver === true, {
      what: 'the reading to end',
    });
    expect(world.readings[0]?.bytes).toBeLessThan(AHEAD_BYTES_MAX);
    // What was on the way arrives, and then the end that no whole answer has.
    const readOn = hashOf(response);
    await expect(readOn).rejects.toThrow('aborted');
  },
);

function* chunks(): Generator<Buffer> {
  for (let index = 0; index < CHUNKS; index += 1)
    yield Buffer.alloc(CHUNK_BYTES, `${index},`);
}

const WHOLE = await hashOf(chunks());

async function hashOf(
  parts: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<string> {
  const hash = createHash('sha256');
  for await (const part of parts) hash.update(part);
  return hash.digest('hex');
}

/** An API with one ledger of 64 MiB, and one order that is done. */
async function startWorld(timeouts: Partial<HttpTimeouts> = {}) {
  const watched = watchReadings(chunks);
  const ledger = readingOf(watched.rows, {
    measure: async () => BigInt(CHUNKS * CHUNK_BYTES),
  });
  const server = await apiWithoutDatabase({
    timeouts,
    jobs: jobsOf({
      runs: { get: async () => doneExport(ID, PARTY) as never },
      stages: { openLedger: async () => ledger },
    }),
    status: EMPTY_STATUS,
  });
  const address = { host: '127.0.0.1', port: 0, token: undefined };
  const listening = await listen(server, address);
  return {
    url: listening.url,
    readings: watched.readings,
    standsStill: watched.standsStill,
    ask: (path: string) =>
      new Promise<IncomingMessage>((resolve, reject) => {
        get(listening.url + path, resolve).on('error', reject);
      }),
    [Symbol.asyncDispose]: () => listening[Symbol.asyncDispose](),
  };
}
