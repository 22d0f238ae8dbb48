/** Answers of each kind in one nightly run, through the real jobs on both queue backends, into the warehouse and the lake. */
import type { Pool } from 'pg';
import { describe, expect, test } from 'vitest';
import { openHome } from '../cli/mirror-home.ts';
import { openFreshDatabase } from '../support/database.ts';
import { freshRedis } from '../support/redis.ts';
import type { LedgerRow } from './hostile/book.ts';
import type { Verdict } from './hostile/case.ts';
import { CASES } from './hostile/cases.ts';
import { judgeOutcome } from './hostile/judge.ts';
import { startHostileSource } from './hostile/start.ts';

const redis = await freshRedis();
/** Each answered for a party of its own. Every case runs in hostile-export.int.test.ts, where no queue is between. */
const SAMPLE = [
  'raw-csv',
  'messages-of-base64',
  'gzip',
  'quoted',
  'times-of-india',
  'ids-as-bytes',
  'unknown-column-of-lines',
  'row-of-5-megabytes',
  'header-only',
  'status-503-once',
  'http-1.0-without-length',
  'error-glued-to-the-last-row',
  'header-twice',
  'chunked-cut-in-a-row',
  'data-that-is-no-base64',
  'quantity-with-an-exponent',
  'another-party-instead',
];
/** Of a ledger whose answer is never good: in a job of the queue, and again. */
const TRIES = 4;

async function loaded(pool: Pool, party: string): Promise<readonly LedgerRow[]> {
  const { rows } = await pool.query<LedgerRow>(
    `select party_id, to_char(vega_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as vega_time,
       quantity::text, effect::text, transfer_type, asset_id, coalesce(account_from_market_id, '') as account_from_market_id,
       account_from_party_id, account_from_account_type, account_from_balance::text,
       coalesce(account_to_market_id, '') as account_to_market_id, account_to_party_id, account_to_account_type,
       account_to_balance::text
     from mirror.ledger_entries where party_id = $1`,
    [party],
  );
  return rows;
}

describe.concurrent.each([
  ['in Postgres', undefined],
  ['in Redis', redis.url],
])('a night of good and bad answers, queues %s', (_, redisUrl) => {
  test('ends; each ledger has the outcome that is right, and the bad ones spoil nothing of the good', async () => {
    const cases = SAMPLE.map((name) => {
      const found = CASES.find((one) => one.name === name);
      if (found === undefined) throw new Error(`There is no case ${name}`);
      return found;
    });
    const host = await startHostileSource({ cases });
    await using database = await openFreshDatabase();
    await using home = await openHome({
      SOURCE_URL: host.url,
      DATABASE_URL: database.url,
      REDIS_URL: redisUrl,
      SOURCE_EXPORT_CONCURRENCY: '4',
    });
    try {
      const night = await home.json(['nightly']);
      expect(night.code).toBe(2);
      const { rows: units } = await database.pool.query<{ party: string; verdict: Verdict }>(
        `select party_id as party, case when state = 'failed' then 'failed' else outcome->>'verdict' end as verdict
         from mirror.nightly_units`,
      );
      const wrong: string[] = [];
      for (const { name, expected } of cases) {
        const party = host.partyOf(name);
        const found = judgeOutcome(
          {
            verdict: units.find((unit) => unit.party === party)?.verdict ?? 'failed',
            published: await loaded(database.pool, party),
            books: host.books(name),
            mayStay: [],
            mustHold: host.mustHold(name),
            requests: host.requests.filter((request) => request.name === name).length,
          },
          { ...expected, maxRequests: expected.maxRequests * TRIES },
        );
        wrong.push(...found.map((line) => `${name}: ${line}`));
      }
      expect(wrong).toEqual([]);
      expect(night.document.evidence).toMatchObject({
        load: { verdict: 'complete' },
        verify: { verdict: 'complete' },
      });
      const counted = await home.json(['query', 'select count(*)::varchar as rows from ledger_entries']);
      const { rows: held } = await database.pool.query<{ rows: string }>(
        'select count(*)::text as rows from mirror.ledger_entries',
      );
      expect(counted.document['rows']).toEqual(held);
    } finally {
      await host.close();
    }
  });
});
