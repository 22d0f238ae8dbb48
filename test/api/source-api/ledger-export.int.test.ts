/**
 * The export on the wire: both forms, errors before and behind the first byte, clients
 * that go away.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { get, type IncomingMessage } from 'node:http';
import { describe, expect, test } from 'vitest';
import type { LedgerQuery } from '../../../src/ledger/ledger-range.ts';
import { PermanentError } from '../../../src/errors/errors.ts';
import { listen } from '../../../src/api/server/server.ts';
import { waitFor } from '../../support/wait-for.ts';
import { apiWithoutDatabase, jobsOf, type TestApi } from '../mirror.ts';
import { readingOf } from '../../support/ledger-reading.ts';

const PARTY = 'AB'.repeat(32);
const PATH = `/api/v2/ledgerentry/export?partyId=${PARTY}`;
const JSON_ACCEPTED = { headers: { accept: 'application/json' } };

type Chunks = (
  question: LedgerQuery,
  signal: AbortSignal,
) => AsyncIterable<Buffer>;

async function serving(read: Chunks): Promise<TestApi> {
  return listen(
    await apiWithoutDatabase({
      jobs: jobsOf({
        stages: {
          openLedger: async (question, signal) =>
            readingOf(() => read(question, signal)),
        },
      }),
    }),
    {
      host: '127.0.0.1',
      port: 0,
      token: undefined,
    },
  );
}

function of(...chunks: readonly (string | Error)[]): Chunks {
  return async function* () {
    for (const chunk of chunks) {
      if (chunk instanceof Error) throw chunk;
      yield Buffer.from(chunk);
    }
  };
}

describe('an answer of the export route', () => {
  test('is the stored CSV unchanged', async () => {
    await using api = await serving(of('a,b\n1,', '2\n'));
    const response = await fetch(`${api.url}${PATH}`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toBe('text/csv');
    expect(response.headers.get('content-disposition')).toBe(
      `attachment;filename=ledger_entries_${PARTY.toLowerCase()}.csv`,
    );
    expect(await response.text()).toBe('a,b\n1,2\n');
  });

  test.each([
    'application/json',
    'application/json;q=0.9, text/csv;q=0.5',
    '*/*',
    'text/html',
  ])(
    'is CSV for a client that accepts %s, as the source sends it',
    async (accept) => {
      await using api = await serving(of('a,b\n', '1,2\n'));
      const response = await fetch(`${api.url}${PATH}`, {
        headers: { accept },
      });
      expect(response.headers.get('content-type')).toBe('text/csv');
      expect(await response.text()).toBe('a,b\n1,2\n');
    },
  );

  test('reads the ledger by whole seconds and canonical ids', async () => {
    const asked: LedgerQuery[] = [];
    await using api = await serving(async function* (question) {
      asked.push(question);
      yield Buffer.from('a\n');
    });
    const range =
      'dateRange.startTimestamp=1682935200999999999&date_range.end_timestamp=-1';
    const response = await fetch(
      `${api.url}${PATH}&assetId=${'C0'.repeat(32)}&${range}`,
    );
    expect(response.headers.get('content-disposition')).toContain(
      '_2023-05-01T10_00_00Z-1969-12-31T23_59_59Z.csv',
    );
    expect(asked).toEqual([
      {
        partyId: 'ab'.repeat(32),
        assetId: 'c0'.repeat(32),
        from: 1_682_935_200_000_000n,
        to: -1_000_000n,
      },
    ]);
  });
});

describe('a failure of an export', () => {
  const unknown = new PermanentError('Cannot read it: it was never exported', {
    code: 'LEDGER_NOT_MIRRORED',
  });

  test.each([
    [unknown, 404, 'Cannot read it: it was never exported'],
    [new Error('secret of the inside'), 500, 'UNKNOWN'],
  ])(
    'before the first byte is a status code: %s',
    async (error, status, inner) => {
      await using api = await serving(of(error));
      for (const init of [{}, JSON_ACCEPTED]) {
        const response = await fetch(`${api.url}${PATH}`, init);
        expect(response.status).toBe(status);
        expect(await response.json()).toMatchObject({
          error: { details: [{ code: 260_002, inner }] },
        });
      }
    },
  );

  test('after the first byte ends the CSV with the error right behind the last byte', async () => {
    await using api = await serving(of('a,b\n1,', new Error('secret')));
    const text = await (await fetch(`${api.url}${PATH}`)).text();
    expect(text).toMatch(
      /^a,b\n1,\{"error":\{"code":13,"message":"Internal error","details":\[.*260002.*\]\}\}$/,
    );
    expect(text).not.toContain('secret');
  });
});

describe('a client of the export route', () => {
  test('slows the reading when it reads slowly and ends it by leaving', async () => {
    let bytes = 0;
    let ended = false;
    await using api = await serving(async function* (_question, signal) {
      try {
        for (; !signal.aborted; bytes += 65_536)
          yield Buffer.alloc(65_536, 'x');
      } finally {
        ended = true;
      }
    });
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      get(`${api.url}${PATH}`, resolve).on('error', reject);
    });
    response.pause();
    await waitFor(
      async () => {
        const before = bytes;
        await sleep(200);
        return bytes > 0 && bytes === before;
      },
      { what: 'the reading to stand still' },
    );
    expect(bytes).toBeLessThan(64 * 2 ** 20);
    response.destroy();
    await waitFor(() => ended, { what: 'the reading to end' });
  });

  test('is refused while too many are served, and accepted when others have left', async () => {
    let open = 0;
    await using api = await serving(async function* (_question, signal) {
      open += 1;
      yield Buffer.from('a\n');
      await new Promise((resolve) =>
        signal.addEventListener('abort', resolve, { once: true }),
      );
    });
    const gone = new AbortController();
    await Promise.all(
      Array.from({ length: 32 }, () =>
        fetch(`${api.url}${PATH}`, { signal: gone.signal }),
      ),
    );
    expect(open).toBe(32);
    const refused = await fetch(`${api.url}${PATH}`);
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({ error: { code: 8 } });
    gone.abort();
    await waitFor(
      async () => {
        const again = new AbortController();
        const { status } = await fetch(`${api.url}${PATH}`, {
          signal: again.signal,
        });
        again.abort();
        return status === 200;
      },
      { what: 'an export to be let in' },
    );
  });
});
