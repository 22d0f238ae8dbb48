/**
 * The console's own routes over a real warehouse: pages by key, charts' numbers, what is
 * refused.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readLive } from '../../../src/api/console/store/work-statements.ts';
import { WorkerRegistry } from '../../../src/observability/store/worker-registry.ts';
import { openRows } from '../../../src/postgres/api-rows.ts';
import { freshWarehouse, startApi, type TestApi } from '../mirror.ts';
import {
  addEntries,
  addExports,
  addParties,
  addSegment,
  forgetWorkers,
  silenceWorkers,
  type Row,
} from '../../support/mirror-arrange.ts';
import { ensurePartitions } from '../../../src/warehouse/store/copy-sink.ts';

const warehouse = await freshWarehouse();
const { pool } = warehouse;
const opened = new AsyncDisposableStack();
let api: TestApi | undefined;
const PARTIES = Array.from(
  { length: 60 },
  (_, n) => `${String(n).padStart(2, '0')}${'ab'.repeat(31)}`,
);
const [FIRST = '', SECOND = ''] = PARTIES;
const OTHER = 'cd'.repeat(32);
const ASSET = 'ef'.repeat(32);
const HOUR_MS = 3_600_000;

function transfer(
  at: string | Date,
  type: string,
  quantity: bigint | number,
): Row {
  return { vega_time: at, transfer_type: type, quantity };
}

function from(party: string, account: string, balance: bigint | number): Row {
  return {
    account_from_party_id: party,
    account_from_account_type: account,
    account_from_balance: balance,
  };
}

function to(party: string, account: string, balance: bigint | number): Row {
  return {
    account_to_party_id: party,
    account_to_account_type: account,
    account_to_balance: balance,
  };
}

beforeAll(async () => {
  opened.use(warehouse);
  await addParties(pool, [...PARTIES, 'network']);
  await addExports(
    pool,
    PARTIES.map((id, index) => ({
      party_id: id,
      last_entry_at:
        index < 30
          ? new Date(Date.UTC(2026, 2, 1) - (index + 1) * HOUR_MS)
          : null,
      quarantined_at: index === 59 ? new Date() : null,
      attempts: 5,
      quarantine_reason: { code: 'X', message: 'why' },
    })),
  );
  const range = { from_time: '2026-01-01Z', to_time: '2026-03-02Z' };
  await addSegment(pool, {
    party_id: FIRST,
    ...range,
    object_key: 'k',
    rows: 3,
    bytes: 9_007_199_254_740_993n,
  });
  await ensurePartitions(pool, ['2026-02']);
  // Two accounts: 100 in, 30 moved between its own, 20 out the next day.
  const mine = { party_id: FIRST, asset_id: ASSET, segment_id: 1 };
  const theirs = OTHER;
  await addEntries(pool, [
    {
      ...mine,
      ...transfer('2026-02-01 22:00Z', 'DEPOSIT', 10n ** 20n),
      ...from(theirs, 'EXTERNAL', 0),
      ...to(FIRST, 'GENERAL', 10n ** 20n),
    },
    {
      ...mine,
      ...transfer('2026-02-01 23:30Z', 'MARGIN_LOW', 30),
      ...from(FIRST, 'GENERAL', 70),
      ...to(FIRST, 'MARGIN', 30),
    },
    {
      ...mine,
      ...transfer('2026-02-02 05:00Z', 'WITHDRAW', 20),
      ...from(FIRST, 'GENERAL', 50),
      ...to(theirs, 'EXTERNAL', 20),
    },
  ]);
  api = opened.use(await startApi(warehouse));
});
afterAll(() => opened.disposeAsync());

async function ask<Answer>(path: string): Promise<Answer> {
  const response = await fetch(`${api?.url}/console/${path}`);
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return (await response.json()) as Answer;
}

interface EntriesPage {
  readonly entries: readonly {
    readonly at: string;
    readonly quantity: string;
  }[];
  readonly next: string | null;
}

describe("a party's entries", () => {
  test('come newest first, filtered by day, type and asset', async () => {
    const found = async (query: string): Promise<readonly string[]> => {
      const { entries } = await ask<EntriesPage>(
        `parties/${FIRST}/entries?${query}`,
      );
      return entries.map(({ quantity }) => quantity);
    };
    expect(await found('')).toEqual(['20', '30', '100000000000000000000']);
    expect(await found('since=2026-02-02')).toEqual(['20']);
    expect(await found('until=2026-02-01&type=DEPOSIT')).toEqual([
      '100000000000000000000',
    ]);
    expect(await found(`asset=${OTHER}`)).toEqual([]);
  });

  test('are paged without a gap or a repetition, also where more of one instant than a page holds', async () => {
    const second = (n: number): Date =>
      new Date(Date.UTC(2026, 1, 3) + Math.floor(n / 120) * 1_000);
    await addEntries(
      pool,
      Array.from({ length: 300 }, (_, n) => ({
        party_id: SECOND,
        asset_id: ASSET,
        segment_id: 1,
        ...transfer(second(n), 'TRANSFER', n),
      })),
    );
    const seen: string[] = [];
    for (let after = ''; ;) {
      const page = await ask<EntriesPage>(`parties/${SECOND}/entries${after}`);
      seen.push(...page.entries.map(({ quantity }) => quantity));
      if (page.next === null) break;
      after = `?after=${encodeURIComponent(page.next)}`;
    }
    expect(seen.map(Number).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: 300 }, (_, n) => n),
    );
  });
});

describe('what a run cost', () => {
  test('is nothing of a run that nobody knows', async () => {
    expect(
      await ask('runs/01a1fc0b-e1b9-71c1-ace8-91e8d46a6831/costs'),
    ).toEqual({
      stages: [],
    });
  });
});

interface Page {
  readonly parties: readonly {
    readonly partyId: string;
    readonly bytes: string;
  }[];
  readonly next: string | null;
}

async function everyPage(query: string): Promise<readonly string[]> {
  const ids: string[] = [];
  for (let after = ''; ;) {
    const { parties, next } = await ask<Page>(`parties?${query}${after}`);
    ids.push(...parties.map(({ partyId }) => partyId));
    if (next === null) return ids;
    after = `&after=${next}`;
  }
}

describe('parties', () => {
  test('are listed page by page, each once, in every view', async () => {
    expect(await everyPage('view=id')).toEqual([...PARTIES, 'network']);
    expect(await everyPage('view=recent')).toEqual(PARTIES.slice(0, 30));
    expect(await everyPage('view=quarantined')).toEqual(PARTIES.slice(59));
  });

  test('are found by the beginning of an id, however it is written', async () => {
    expect(await everyPage('search=01AB')).toEqual([SECOND]);
    expect(await everyPage('search=0x01ab')).toEqual([SECOND]);
    expect(await everyPage(`search=${SECOND}`)).toEqual([SECOND]);
    const cut = (given: string): string =>
      `search=${encodeURIComponent(given)}`;
    expect(await everyPage(cut(`${SECOND.slice(0, 8)}…abab`))).toEqual([
      SECOND,
    ]);
    expect(await everyPage(cut('01AB…'))).toEqual([SECOND]);
    expect(await everyPage(cut('0x01ab...ABAB'))).toEqual([SECOND]);
    expect(await everyPage(cut('01ab…abcd'))).toEqual([]);
    expect(await everyPage('search=netw')).toEqual(['network']);
    expect(await everyPage("search=%25'")).toEqual([]);
  });

  test('have their size to the last digit', async () => {
    const { parties } = await ask<Page>(`parties?search=${FIRST}`);
    expect(parties).toMatchObject([{ rows: '3', bytes: '9007199254740993' }]);
  });
});

describe('a ledger', () => {
  test('has its accounts, and what flowed each day of the zone that is asked for', async () => {
    expect(await ask(`parties/${FIRST}`)).toMatchObject({
      isSentOnly: false,
      accounts: [
        { accountType: 'GENERAL', entries: '3' },
        { accountType: 'MARGIN', entries: '1' },
      ],
    });
    const received = '100000000000000000000';
    expect(await ask(`parties/${FIRST}/flows?asset=${ASSET}`)).toEqual({
      days: [
        { day: '2026-02-01', entries: '2', received, sent: '0' },
        { day: '2026-02-02', entries: '1', received: '0', sent: '20' },
      ],
    });
    const inKolkata = await ask(
      `parties/${FIRST}/flows?asset=${ASSET}&zone=Asia/Kolkata`,
    );
    expect(inKolkata).toMatchObject({
      days: [{ day: '2026-02-02', entries: '3' }],
    });
  });

  test('has the balance of an account in its order', async () => {
    const { points } = await ask<{ points: { balance: string }[] }>(
      `parties/${FIRST}/balance?asset=${ASSET}&type=GENERAL`,
    );
    expect(points.map(({ balance }) => balance)).toEqual([
      '100000000000000000000',
      '70',
      '50',
    ]);
  });
});

test.each([
  ['parties?view=recent&after=0%27', 400],
  ['parties?view=other', 400],
  [`parties/${OTHER}`, 404],
  ['parties/none', 404],
  [`parties/${FIRST}/flows?asset=${ASSET}&zone=Mars/Olympus`, 400],
])('refuses %s with %i', async (path, status) => {
  expect((await fetch(`${api?.url}/console/${path}`)).status).toBe(status);
});

test('lists what was quarantined with its reason, and draws it on the line of time', async () => {
  expect(await ask('quarantined?limit=1')).toMatchObject({
    exports: [{ partyId: PARTIES[59], reason: { message: 'why' } }],
  });
  expect(
    (await fetch(`${api?.url}/console/quarantined?limit=1001`)).status,
  ).toBe(400);
  const { lines } = await ask<{ lines: { partyId: string; state: string }[] }>(
    'lines',
  );
  expect(lines.map(({ partyId, state }) => [partyId, state])).toEqual([
    [PARTIES[59], 'quarantined'],
    [FIRST, 'published'],
  ]);
});

test('sends a snapshot at once, and as an event stream', async () => {
  const stop = new AbortController();
  const response = await fetch(`${api?.url}/console/events`, {
    signal: stop.signal,
  });
  expect(response.headers.get('content-type')).toBe('text/event-stream');
  let text = '';
  for await (const chunk of response.body ?? []) {
    text += Buffer.from(chunk).toString();
    if (text.includes('\n\ndata: ') && text.endsWith('\n\n')) break;
  }
  stop.abort();
  const data = /^data: (.*)$/m.exec(text)?.[1] ?? '{}';
  expect(JSON.parse(data)).toMatchObject({
    live: [],
    quarantined: [{ partyId: PARTIES[59] }],
    status: { whole: false },
    workers: 0,
  });
});

test('the console counts the same workers as the status', async () => {
  const registry = new WorkerRegistry(warehouse.db);
  const schedule = { pattern: '0 2 * * *', tz: 'UTC' };
  await registry.beat('0198f5a2-0000-7000-8000-000000000001', {
    name: 'worker',
    queues: [],
    sourceUrl: undefined,
    schedules: { nightly: schedule, audit: schedule },
  });
  const counts = async (): Promise<readonly number[]> => [
    (await registry.facts()).workers,
    (await readLive(openRows(pool))).workers,
  ];
  expect(await counts()).toEqual([1, 1]);

  // Longer than a living worker is ever silent, by two seconds.
  await silenceWorkers(pool, 12_000);
  expect(await counts()).toEqual([0, 0]);
  await forgetWorkers(pool);
});
