/**
 * A source whose parties have ids of its own is mirrored wholly, from its list to a query
 * and back.
 */
import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { makeLedger } from '../../exports/hostile/ledger.ts';
import {
  declare,
  honestAnswer,
  WHOLE,
} from '../../exports/hostile/cases/case.ts';
import { startHostileSource } from '../../exports/hostile/start.ts';
import { openFreshDatabase } from '../../support/database.ts';
import { waitFor } from '../../support/wait-for.ts';
import { openHome } from '../mirror-home.ts';

const IDS = {
  word: 'party-1',
  'another-word': 'party-10',
  uuid: randomUUID(),
  'upper-hex': 'AB12CD34EF',
  'one-byte': '03',
  hex: 'ab'.repeat(32),
  odd: String.raw`Zoë & Söhne/1 "50%", \N\t #a?b=c='; --`,
  long: 'long'.repeat(250),
  dots: '..',
  astral: '𝒫arty',
  'upper-hex-of-64': 'CD'.repeat(32),
  'word-in-small-letters': 'vote',
};
/**
 * Hex digits and the public service's words have one spelling in the mirror; the source
 * is asked in its own.
 */
const KEPT: Readonly<Record<string, string>> = {
  [IDS['upper-hex-of-64']]: 'cd'.repeat(32),
  vote: 'VOTE',
};
const kept = (id: string): string => KEPT[id] ?? id;

test('parties with ids of any form are listed, exported, loaded, verified, served and rebuilt', async () => {
  const ids = Object.values(IDS);
  const cases = Object.entries(IDS).map(([name, party], at) => ({
    ...declare(name, 'an honest ledger', honestAnswer, WHOLE, {
      truth: (now, own) =>
        makeLedger(now, { seed: name, party: own, rows: 30 }).map(
          (entry, row) => {
            // Every party deals with others of its kind.
            const other = { party: ids[(at + row) % ids.length] ?? '' };
            return entry.from.party === own
              ? { ...entry, to: { ...entry.to, ...other } }
              : { ...entry, from: { ...entry.from, ...other } };
          },
        ),
    }),
    party,
  }));
  const host = await startHostileSource({ cases });
  await using stack = new AsyncDisposableStack();
  stack.defer(() => host.close());
  const database = stack.use(await openFreshDatabase());
  const home = stack.use(
    await openHome({ SOURCE_URL: host.url, DATABASE_URL: database.url }),
  );

  const night = await home.json(['nightly']);
  expect([
    night.code,
    night.document.verdict,
    night.document.evidence?.['covers'],
  ]).toMatchObject([
    0,
    'complete',
    { listed: ids.length, covered: ids.length },
  ]);
  const truth = cases.flatMap(({ name, party }) =>
    host.truth(name).map((row) => ({ ...row, party_id: party })),
  );
  const rows = `select party_id, to_char(vega_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as vega_time,
    quantity::text, effect::text, account_from_party_id, account_to_party_id from mirror.ledger_entries`;
  const loaded = await database.pool.query<Record<string, string>>(rows);
  expect(loaded.rows.map(shortRow).toSorted()).toEqual(
    truth.map(shortRow).toSorted(),
  );

  const verified = await home.json(['verify', '--deep']);
  expect([verified.code, verified.document.verdict]).toEqual([0, 'complete']);
  const counted = await home.json([
    'query',
    'select party_id, count(*) as n from ledger_entries group by 1',
  ]);
  const counts = counted.document['rows'] as { party_id: string; n: number }[];
  expect(
    Object.fromEntries(counts.map(({ party_id, n }) => [party_id, n])),
  ).toEqual(
    Object.fromEntries(
      cases.map(({ name, party }) => [kept(party), host.truth(name).length]),
    ),
  );
  const again = await home.json([
    'export',
    '--party',
    IDS.odd,
    '--out',
    'odd.csv',
  ]);
  expect([again.code, again.document.verdict]).toEqual([0, 'complete']);
  const second = await home.json(['nightly']);
  expect([second.code, second.document.verdict]).toEqual([0, 'complete']);

  const served = home.start(['serve'], { API_PORT: '0' });
  const [, url] = await waitFor(
    () => /"url":"(http[^"]+)"[^\n]*"msg":"Serving"/.exec(served.stderr),
    {
      what: 'the read API',
    },
  );
  for (const { name, party } of cases) {
    const answer = await fetch(
      `${url}/api/v2/ledgerentry/export?partyId=${encodeURIComponent(party)}`,
    );
    const lines = (await answer.text()).trim().split('\n');
    expect([name, answer.status, lines.length - 1]).toEqual([
      name,
      200,
      host.truth(name).length,
    ]);
  }

  await using empty = await openFreshDatabase();
  const rebuilt = await home.json(['load', '--all', '--take-over'], {
    DATABASE_URL: empty.url,
    SOURCE_URL: undefined,
  });
  expect([rebuilt.code, rebuilt.document.verdict]).toEqual([0, 'complete']);
  const restored = await empty.pool.query<Record<string, string>>(rows);
  expect(restored.rows.map(shortRow).toSorted()).toEqual(
    truth.map(shortRow).toSorted(),
  );
});

function shortRow(row: Readonly<Record<string, string | null>>): string {
  const {
    party_id,
    vega_time,
    quantity,
    effect,
    account_from_party_id,
    account_to_party_id,
  } = row;
  const ids = [party_id, account_from_party_id, account_to_party_id].map((id) =>
    kept(id ?? ''),
  );
  return JSON.stringify([vega_time, quantity, effect, ...ids]);
}
