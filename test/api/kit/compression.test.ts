/** Gzip: where it is asked for, the same bytes; where not, none; and caches are told. */
import { get, type IncomingMessage } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import { afterAll, describe, expect, test } from 'vitest';
import { listen } from '../../../src/api/server/server.ts';
import { waitFor } from '../../support/wait-for.ts';
import { apiWithoutDatabase, jobsOf } from '../mirror.ts';
import { readingOf } from '../../support/ledger-reading.ts';

const IDS = Array.from({ length: 200 }, (_, at) =>
  at.toString(16).padStart(64, '0'),
);
const PARTY = 'ab'.repeat(32);
const ROW = Buffer.from('2023-05-01T00:00:00Z,1,MARGIN\n');
let released = 0;
let isEndless = false;

const server = await apiWithoutDatabase({
  answers: {
    'read how a list stands': () => [
      {
        epoch: 1,
        headHeight: '7',
        headNanos: '1000',
        provenTo: null,
        isComplete: true,
        hasNetwork: false,
      },
    ],
    'read a page of parties': ([, rowsMax]: [number, number]) => {
      const ids = IDS.slice(0, rowsMax);
      const positions = ids.map((_, at) => String(at));
      return [
        { ids: ids.join('\n'), positions: positions.join('\n'), extras: null },
      ];
    },
    'look a party up': ([, id]: [number, string]) => [{ id, pos: '1' }],
  },
  jobs: jobsOf({
    stages: {
      openLedger: async () =>
        readingOf(async function* () {
          try {
            yield Buffer.from('vega_time,quantity,transfer_type\n');
            const rowsMax = isEndless ? Number.POSITIVE_INFINITY : 5_000;
            for (let rows = 0; rows < rowsMax; rows += 1) {
              yield ROW;
              if (isEndless) await sleep(1);
            }
          } finally {
            released += 1;
          }
        }),
    },
  }),
});
const api = await listen(server, {
  host: '127.0.0.1',
  port: 0,
  token: undefined,
});
afterAll(() => api[Symbol.asyncDispose]());

async function ask(path: string, encoding?: string): Promise<IncomingMessage> {
  const headers = encoding === undefined ? {} : { 'accept-encoding': encoding };
  return new Promise((resolve, reject) => {
    get(`${api.url}${path}`, { headers }, resolve).on('error', reject);
  });
}

async function bytesOf(response: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

const LIST = '/api/v2/parties?pagination.first=100';
const EXPORT = `/api/v2/ledgerentry/export?partyId=${PARTY}`;

describe.each([LIST, EXPORT])('an answer to %s', (path) => {
  test.each(['gzip', 'br, gzip;q=0.5', 'X-GZIP'])(
    'is gzipped for Accept-Encoding "%s" and unpacks to the same bytes',
    async (encoding) => {
      const plain = await ask(path);
      const packed = await ask(path, encoding);
      expect([
        plain.headers['content-encoding'],
        packed.headers['content-encoding'],
      ]).toEqual([undefined, 'gzip']);
      const plainBytes = await bytesOf(plain);
      const packedBytes = await bytesOf(packed);
      expect(packedBytes.length).toBeLessThan(plainBytes.length);
      expect(gunzipSync(packedBytes).equals(plainBytes)).toBe(true);
      for (const { headers } of [plain, packed])
        expect(headers.vary).toContain('Accept-Encoding');
    },
  );

  test.each(['', 'br', 'gzip;q=0', 'gzip; q=0.00', 'agzip'])(
    'is not gzipped for Accept-Encoding "%s"',
    async (encoding) => {
      const response = await ask(path, encoding);
      expect(response.headers['content-encoding']).toBeUndefined();
      await bytesOf(response);
    },
  );
});

describe('gzip compression of answers', () => {
  test('is skipped for answers too small to gain from it', async () => {
    const response = await ask(`/api/v2/parties?partyId=${PARTY}`, 'gzip');
    expect(response.headers['content-encoding']).toBeUndefined();
    expect(JSON.parse((await bytesOf(response)).toString())).toHaveProperty(
      'parties',
    );
  });

  test('ends the reading when the client leaves in the middle', async () => {
    isEndless = true;
    const before = released;
    const response = await ask(EXPORT, 'gzip');
    response.destroy();
    await expect(
      waitFor(() => released > before, { what: 'the export let go' }),
    ).resolves.toBe(true);
    isEndless = false;
  });
});
