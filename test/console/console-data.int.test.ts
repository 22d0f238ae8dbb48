/** The console's own routes over a real warehouse: pages by key, charts' numbers, what is refused. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PostgresConsoleStore } from '../../src/api/console/store/console-store.ts';
import { freshWarehouse, startApi, type TestApi, NO_CONSOLE } from '../api/mirror.ts';

const warehouse = await freshWarehouse();
const { pool } = warehouse;
const opened = new AsyncDisposableStack();
let api: TestApi | undefined;
const PARTIES = Array.from({ length: 60 }, (_, n) => `${String(n).padStart(2, '0')}${'ab'.repeat(31)}`);
const [FIRST = '', SECOND = ''] = PARTIES;
const OTHER = 'cd'.repeat(32);
const ASSET = 'ef'.repeat(32);

beforeAll(async () => {
  opened.use(warehouse);
  await pool.query(
    `insert into mirror.parties (party_id, first_epoch) select id, 1 from unnest($1::text[]) id`,
    [[...PARTIES, 'network']],
  );
  await pool.query(
    `insert into mirror.exports (party_id, last_entry_at, quarantined_at, attempts, quarantine_reason)
     select id, case when n <= 30 then '2026-03-01T00:00Z'::timestamptz - n * interval '1 hour' end,
       case when n = 60 then now() end, 5, '{"code": "X", "message": "why"}'
     from unnest($1::text[]) with ordinality as party (id, n)`,
    [PARTIES],
  );
  // Two accounts: 100 in, 30 moved between its own, 20 out the next day.
  await pool.query(
    `insert into mirror.segments (party_id, from_time, to_time, object_key, rows, bytes, sha256, object_bytes, object_sha256,
       digest, row_form, columns) values ($1, '2026-01-01Z', '2026-03-02Z', 'k', 3, 9007199254740993, '', 1, '', '', '', '{}')`,
    [FIRST],
  );
  await pool.query(
    `insert into mirror.coverage (party_id, from_time, to_time, sides, segment_id)
     select party_id, from_time, to_time, 'both', segment_id from mirror.segments`,
  );
  await pool.query(
    `create table mirror.ledger_entries_2026 partition of mirror.ledger_entries for values from ('2026-01-01') to ('2027-01-01')`,
  );
  await pool.query(
    `insert into mirror.ledger_entries (party_id, vega_time, quantity, transfer_type, asset_id, account_from_party_id,
       account_from_account_type, account_from_balance, account_to_party_id, account_to_account_type, account_to_balance, segment_id)
     values
       ($1, '2026-02-01 22:00Z', 100000000000000000000, 'DEPOSIT', $3, $2, 'EXTERNAL', 0, $1, 'GENERAL', 100000000000000000000, 1),
       ($1, '2026-02-01 23:30Z', 30, 'MARGIN_LOW', $3, $1, 'GENERAL', 70, $1, 'MARGIN', 30, 1),
       ($1, '2026-02-02 05:00Z', 20, 'WITHDRAW', $3, $1, 'GENERAL', 50, $2, 'EXTERNAL', 20, 1)`,
    [FIRST, OTHER, ASSET],
  );
  api = opened.use(
    await startApi(warehouse, {
      console: { ...NO_CONSOLE, store: new PostgresConsoleStore(pool) },
    }),
  );
});
afterAll(() => opened.disposeAsync());

async function ask<Answer>(path: string): Promise<Answer> {
  const response = await fetch(`${api?.url}/console/${path}`);
  if (!response.ok) throw new Error(`${path} answered ${response.status}`);
  return (await response.json()) as Answer;
}

interface EntriesPage {
  readonly entries: readonly { readonly at: string; readonly quantity: string }[];
  readonly next: string | null;
}

describe("a party's entries", () => {
  it('come newest first, filtered by day, type and asset', async () => {
    const found = async (query: string): Promise<readonly string[]> => {
      const { entries } = await ask<EntriesPage>(`parties/${FIRST}/entries?${query}`);
      return entries.map(({ quantity }) => quantity);
    };
    expect(await found('')).toEqual(['20', '30', '100000000000000000000']);
    expect(await found('since=2026-02-02')).toEqual(['20']);
    expect(await found('until=2026-02-01&type=DEPOSIT')).toEqual(['100000000000000000000']);
    expect(await found(`asset=${OTHER}`)).toEqual([]);
  });

  it('are paged without a gap or a repetition, also where more of one instant than a page holds', async () => {
    await pool.query(
      `insert into mirror.ledger_entries (party_id, vega_time, quantity, transfer_type, asset_id, segment_id)
       select $1, timestamptz '2026-02-03Z' + (n / 120) * interval '1 second', n, 'TRANSFER', $2, 1 from generate_series(0, 299) n`,
      [SECOND, ASSET],
    );
    const seen: string[] = [];
    for (let after = ''; ;) {
      const page = await ask<EntriesPage>(`parties/${SECOND}/entries${after}`);
      seen.push(...page.entries.map(({ quantity }) => quantity));
      if (page.next === null) break;
      after = `?after=${encodeURIComponent(page.next)}`;
    }
    expect(seen.map(Number).toSorted((a, b) => a - b)).toEqual(Array.from({ length: 300 }, (_, n) => n));
  });
});

describe('what a run cost', () => {
  it('is nothing of a run that nobody knows', async () => {
    expect(await ask('runs/01a1fc0b-e1b9-71c1-ace8-91e8d46a6831/costs')).toEqual({ stages: [] });
  });
});

interface Page {
  readonly parties: readonly { readonly partyId: string; readonly bytes: string }[];
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
  it('are listed page by page, each once, in every view', async () => {
    expect(await everyPage('view=id')).toEqual([...PARTIES, 'network']);
    expect(await everyPage('view=recent')).toEqual(PARTIES.slice(0, 30));
    expect(await everyPage('view=quarantined')).toEqual(PARTIES.slice(59));
  });

  it('are found by the beginning of an id, however it is written', async () => {
    expect(await everyPage('search=01AB')).toEqual([SECOND]);
    expect(await everyPage('search=0x01ab')).toEqual([SECOND]);
    expect(await everyPage(`search=${SECOND}`)).toEqual([SECOND]);
    const cut = (given: string): string => `search=${encodeURIComponent(given)}`;
    expect(await everyPage(cut(`${SECOND.slice(0, 8)}…abab`))).toEqual([SECOND]);
    expect(await everyPage(cut('01AB…'))).toEqual([SECOND]);
    expect(await everyPage(cut('0x01ab...ABAB'))).toEqual([SECOND]);
    expect(await everyPage(cut('01ab…abcd'))).toEqual([]);
    expect(await everyPage('search=netw')).toEqual(['network']);
    expect(await everyPage("search=%25'")).toEqual([]);
  });

  it('have their size to the last digit', async () => {
    const { parties } = await ask<Page>(`parties?search=${FIRST}`);
    expect(parties).toMatchObject([{ rows: '3', bytes: '9007199254740993' }]);
  });
});

describe('a ledger', () => {
  it('has its accounts, and what flowed each day of the zone that is asked for', async () => {
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
    const inKolkata = await ask(`parties/${FIRST}/flows?asset=${ASSET}&zone=Asia/Kolkata`);
    expect(inKolkata).toMatchObject({ days: [{ day: '2026-02-02', entries: '3' }] });
  });

  it('has the balance of an account in its order', async () => {
    const { points } = await ask<{ points: { balance: string }[] }>(
      `parties/${FIRST}/balance?asset=${ASSET}&type=GENERAL`,
    );
    expect(points.map(({ balance }) => balance)).toEqual(['100000000000000000000', '70', '50']);
  });
});

it.each([
  ['parties?view=recent&after=0%27', 400],
  ['parties?view=other', 400],
  [`parties/${OTHER}`, 404],
  ['parties/none', 404],
  [`parties/${FIRST}/flows?asset=${ASSET}&zone=Mars/Olympus`, 400],
])('refuses %s with %i', async (path, status) => {
  expect((await fetch(`${api?.url}/console/${path}`)).status).toBe(status);
});

it('lists what was quarantined with its reason, and draws it on the line of time', async () => {
  expect(await ask('quarantined?limit=1')).toMatchObject({
    units: [{ partyId: PARTIES[59], reason: { message: 'why' } }],
  });
  expect((await fetch(`${api?.url}/console/quarantined?limit=1001`)).status).toBe(400);
  const { lines } = await ask<{ lines: { partyId: string; state: string }[] }>('lines');
  expect(lines.map(({ partyId, state }) => [partyId, state])).toEqual([
    [PARTIES[59], 'quarantined'],
    [FIRST, 'published'],
  ]);
});

it('sends a snapshot at once, and as an event stream', async () => {
  const stop = new AbortController();
  const response = await fetch(`${api?.url}/console/events`, { signal: stop.signal });
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
