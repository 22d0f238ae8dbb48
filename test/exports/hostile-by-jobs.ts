/**
 * The hostile source's cases as exports on demand: by the real jobs of one mirror, into
 * its warehouse.
 */
import type { Pool } from 'pg';
import { enqueueRun } from '../../src/runs/enqueue.ts';
import type { Run } from '../../src/runs/store/run-store.ts';
import { type RealApp, startRealApp } from '../app/real-app.ts';
import { waitFor } from '../support/wait-for.ts';
import type { LedgerRow } from './hostile/ledger.ts';
import type {
  AnswerSettings,
  HostileCase,
  Phase,
} from './hostile/cases/case.ts';
import { judgeOutcome } from './hostile/judge.ts';
import { type HostileSource, startHostileSource } from './hostile/start.ts';

/** How often the queue tries a job. */
const TRIES_MAX = 4;
/** Drips and silences end by it. */
const PATIENCE = {
  export: {
    headersMs: 4_000,
    idleMs: 2_000,
    callMs: 40_000,
    drip: { bytesPerSecondMin: 1024, windowMs: 3_000 },
  },
  exportRetries: {
    attemptsMax: 2,
    elapsedMaxMs: 2_000,
    unreachableMaxMs: 500,
    onlyCheap: true,
  },
};
const CONCURRENCY = 8;
const DELIMITERS: Readonly<Record<string, string>> = {
  ';': 'semicolon',
  '\t': 'tab',
};

/**
 * What a mirror has to be told for a case: cases that need the same are parties of one
 * source.
 */
export function groupCases(
  cases: readonly HostileCase[],
): readonly (readonly HostileCase[])[] {
  return [
    ...Map.groupBy(cases, (one) =>
      JSON.stringify([one.apart, settingsOf(one)]),
    ).values(),
  ];
}

function settingsOf({
  settings = {},
  assets,
}: HostileCase): Record<string, string> {
  const { delimiter, timeColumn, partyColumn, assetColumn, idForm, timeForm } =
    settings satisfies AnswerSettings;
  const columns = [
    ['vega_time', timeColumn],
    ['account_from_party_id', partyColumn],
    ['asset_id', assetColumn],
  ].flatMap(([ours, theirs]) =>
    theirs === undefined ? [] : [`${ours}=${theirs}`],
  );
  const named = {
    EXPORT_COLUMNS: columns.length === 0 ? undefined : columns.join(','),
    EXPORT_DELIMITER:
      delimiter === undefined ? undefined : DELIMITERS[delimiter],
    EXPORT_ID_FORMAT: idForm,
    EXPORT_TIME_FORMAT: timeForm,
    SOURCE_ASSETS: assets?.join(','),
  };
  return Object.fromEntries(
    Object.entries(named).filter(
      (pair): pair is [string, string] => pair[1] !== undefined,
    ),
  );
}

/**
 * Exports each case in each of its phases, all of a phase at once. @returns what is
 * wrong, a line each
 */
export async function exportCases(
  cases: readonly HostileCase[],
  env: Readonly<Record<string, string>>,
  concurrency = CONCURRENCY,
): Promise<string[]> {
  const host = await startHostileSource({ cases });
  try {
    const settings = settingsOf(cases[0] as HostileCase);
    await using mirror = await startRealApp(
      {
        ...env,
        ...settings,
        SOURCE_URL: host.url,
        SOURCE_EXPORT_CONCURRENCY: `${concurrency}`,
      },
      { sourceLimits: PATIENCE },
    );
    const wrong: string[] = [];
    const last = Math.max(...cases.map(({ followedBy }) => followedBy.length));
    for (let round = 0; round <= last; round += 1) {
      const now = cases.flatMap((one) => {
        const phase = [one, ...one.followedBy][round];
        return phase === undefined ? [] : [{ one, phase }];
      });
      if (round > 0) for (const { one } of now) host.advance(one.name);
      // The lists tell one time to all.
      for (const [clock, asked] of Map.groupBy(
        now,
        ({ phase }) => phase.clock,
      )) {
        host.setListClock(clock);
        wrong.push(
          ...(await exportRound(asked, mirror, host)).map(
            (line) => `run ${round + 1}, ${line}`,
          ),
        );
      }
    }
    return wrong;
  } finally {
    await host.close();
  }
}

interface Asked {
  readonly one: HostileCase;
  readonly phase: Phase;
}

async function exportRound(
  asked: readonly Asked[],
  mirror: RealApp,
  host: HostileSource,
): Promise<string[]> {
  const before = host.requests.length;
  const runIds: string[] = [];
  for (const { one, phase } of asked) {
    const params = { load: false, again: phase.isAgain === true };
    runIds.push(await order(mirror, 'export', host.partyOf(one.name), params));
  }
  await allEnded(mirror, runIds);
  const loadId = await order(mirror, 'load', 'warehouse and lake', {});
  await allEnded(mirror, [loadId]);
  const { runs } = mirror.app.jobs;
  const load = await runs.get(loadId);
  const wrong =
    load?.verdict === 'complete'
      ? []
      : [`load: ${load?.verdict} ${JSON.stringify(load?.evidence)}`];
  for (const [at, { one, phase }] of asked.entries()) {
    const { verdict, evidence } = (await runs.get(runIds[at] ?? '')) ?? {
      verdict: null,
      evidence: {},
    };
    const requests = host.requests
      .slice(before)
      .filter(({ name }) => name === one.name).length;
    const found = judgeOutcome(
      {
        verdict: verdict ?? 'failed',
        published: await loaded(
          mirror.app.warehouse.pool,
          host.partyOf(one.name),
        ),
        truth: host.truth(one.name).map(asPostgresHasIt),
        mayStay: host.mayStay(one.name),
        mustHold: host.mustHold(one.name),
        requests,
      },
      {
        ...phase.expected,
        maxRequests: phase.expected.maxRequests * TRIES_MAX,
      },
    );
    wrong.push(
      ...found.map(
        (line) =>
          `${one.name}: ${line} (${JSON.stringify(evidence).slice(0, 300)})`,
      ),
    );
  }
  return wrong;
}

/** Postgres knows no negative zero. */
function asPostgresHasIt(row: LedgerRow): LedgerRow {
  return row['effect'] === '-0' ? { ...row, effect: '0' } : row;
}

async function order(
  { app }: RealApp,
  kind: Run['kind'],
  subject: string,
  params: object,
): Promise<string> {
  const run = await app.jobs.runs.create({
    kind,
    subject,
    params: { ...params },
  });
  await enqueueRun(run, app.jobs);
  return run.runId;
}

async function allEnded(
  { app }: RealApp,
  runIds: readonly string[],
): Promise<void> {
  const isEnded = async (): Promise<boolean> => {
    const { rows } = await app.warehouse.pool.query(
      'select from mirror.runs where run_id = any($1::uuid[]) and finished_at is null limit 1',
      [runIds],
    );
    return rows.length === 0;
  };
  await waitFor(isEnded, {
    what: `${runIds.length} runs to end`,
    timeoutMs: 1_200_000,
  });
}

async function loaded(
  pool: Pool,
  party: string,
): Promise<readonly LedgerRow[]> {
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
