/** The report of a nightly run: published once, compared later, and brought back. */
import { beforeEach, describe, expect, test } from 'vitest';
import {
  decodeReport,
  type NightlyReport,
  readReport,
  reportKey,
} from '../../src/runs/nightly-report.ts';
import {
  type Comparison,
  compareWithReport,
} from '../../src/runs/store/compare-report.ts';
import {
  type Completeness,
  readCompleteness,
} from '../../src/status/store/completeness.ts';
import {
  publishReport,
  type ReportDeps,
  restoreReports,
} from '../../src/runs/store/publish-report.ts';
import { type Run, RunStore } from '../../src/runs/store/run-store.ts';
import type { Pool } from 'pg';
import { loadWorld } from '../warehouse/load-world.ts';
import { HEADER_12 } from '../ledger/csv.ts';
import { PARTY_A, PARTY_B, publish, row12 } from '../warehouse/published.ts';
import {
  addParties,
  emptyCoverage,
  emptyRuns,
  falsifyDigests,
  removeParty,
  removeSegmentsOf,
  renameParty,
  setMirrorCreatedAt,
} from '../support/mirror-arrange.ts';

const world = await loadWorld();
const { database, warehouse } = world;
const { pool } = database;
const { signal } = new AbortController();
const deps = (): ReportDeps => ({ warehouse, objects: world.objects, signal });
const runs = new RunStore(warehouse.db);
const COVERS: Completeness = {
  listed: 2,
  configured: null,
  wanted: 2,
  covered: 2,
  neverAsked: 0,
  unlisted: 0,
  unlistedParties: [],
  removed: 0,
  removedParties: [],
  comparedSince: null,
  quarantined: 0,
  unreadLists: [],
  knownGaps: 0,
  unconfirmedGaps: 0,
  notLoaded: 0,
  isLoading: false,
  hasFailedVerify: false,
  coveredTo: '2023-05-02T00:00:00Z',
  openDoubts: 0,
};

beforeEach(async () => {
  await emptyRuns(pool);
  await setMirrorCreatedAt(pool, '2020-01-01Z');
  await addParties(pool, [PARTY_A, PARTY_B]);
});

async function publishDay(
  party: string,
  day: number,
  rows: number,
  db: Pick<Pool, 'query'> = pool,
): Promise<{ key: string }> {
  const at = (of: number): string =>
    `2023-05-${String(of).padStart(2, '0')}T00:00:00Z`;
  const times = Array.from(
    { length: rows },
    (_, index) => `2023-05-${String(day).padStart(2, '0')} 01:00:0${index}+00`,
  );
  return publish(db, world.objects, {
    party,
    from: at(day),
    to: at(day + 1),
    header: HEADER_12,
    rows: times.map((time) => row12({ time })),
  });
}

async function night(): Promise<{
  run: Run;
  report: NightlyReport;
  key: string;
}> {
  const created = await runs.create({ kind: 'nightly', subject: 'now' });
  const run = (await runs.start(created.runId)) as Run;
  const outcome = {
    verdict: 'complete',
    evidence: { exports: { parties: 2 }, covers: COVERS },
  } as const;
  const told = await publishReport(run, outcome, deps());
  await runs.finish(run.runId, told.verdict, told.evidence);
  const key = reportKey(run);
  expect(told.evidence).toMatchObject({ report: key });
  return { run, key, report: await readReport(key, deps()) };
}

function compare({
  report,
  key,
}: {
  report: NightlyReport;
  key: string;
}): Promise<Comparison> {
  return compareWithReport(report, key, deps());
}

describe('the report of a nightly run', () => {
  test('says what was held, in sums that add up, and names the ledgers that changed', async () => {
    await publishDay(PARTY_A, 1, 2);
    await publishDay(PARTY_B, 1, 3);
    const first = await night();
    expect(first.key).toMatch(/^runs\/\d{8}T\d{6}Z\.[0-9a-f-]{36}\.json$/);
    expect(first.report).toMatchObject({
      verdict: 'complete',
      covers: { covered: 2 },
      lists: { parties: { rows: '2' }, checkpoints: { rows: '0' } },
      ledgers: { rows: '5', segments: '2' },
      previous: null,
    });
    expect(
      first.report.changed.map(({ partyId, rows }) => [partyId, rows]),
    ).toEqual([
      [PARTY_A, '2'],
      [PARTY_B, '3'],
    ]);
    await publishDay(PARTY_B, 2, 1);
    const second = await night();
    expect(second.report).toMatchObject({
      ledgers: { rows: '6' },
      previous: first.key,
    });
    expect(
      second.report.changed.map(({ partyId, rows }) => [partyId, rows]),
    ).toEqual([[PARTY_B, '4']]);
  });

  test('names a ledger whose publication was under way at the report before', async () => {
    const publishing = await pool.connect();
    try {
      await publishing.query('begin');
      await publishDay(PARTY_B, 1, 3, publishing);
      expect((await night()).report.changed).toEqual([]);
      await publishing.query('commit');
    } finally {
      publishing.release();
    }
    const { report } = await night();
    expect(report.changed.map(({ partyId, rows }) => [partyId, rows])).toEqual([
      [PARTY_B, '3'],
    ]);
  });

  test('tells what is covered as it ends where its run has no reading of that: an error ended it', async () => {
    await publishDay(PARTY_A, 1, 2);
    const created = await runs.create({ kind: 'nightly', subject: 'now' });
    const run = (await runs.start(created.runId)) as Run;
    const outcome = {
      verdict: 'failed',
      evidence: { error: { code: 'LAKE_FOREIGN' } },
    } as const;
    await publishReport(run, outcome, deps());
    const { covers, evidence, verdict } = await readReport(
      reportKey(run),
      deps(),
    );
    expect({ covers, evidence, verdict }).toEqual({
      ...outcome,
      covers: { ...(await readCompleteness(warehouse.db)) },
    });
  });

  test('is the one that counts if its run is delivered again and finds nothing worse', async () => {
    const { run, key } = await night();
    const again = await publishReport(
      run,
      { verdict: 'complete', evidence: {} },
      deps(),
    );
    expect(again).toMatchObject({
      verdict: 'complete',
      evidence: { exports: { parties: 2 }, report: key },
    });
  });

  test('never makes a verdict better than what the last delivery of its run found', async () => {
    const { run, key } = await night();
    const found = {
      verdict: 'failed',
      evidence: { verify: { verdict: 'failed' } },
    } as const;
    const again = await publishReport(run, found, deps());
    expect(again).toMatchObject({
      verdict: 'failed',
      evidence: {
        verify: { verdict: 'failed' },
        earlierReport: { report: key, verdict: 'complete' },
      },
    });
    const correctedKey = again.evidence['report'] as string;
    expect(await readReport(correctedKey, deps())).toMatchObject({
      verdict: 'failed',
    });

    await emptyRuns(pool);
    await restoreReports(deps(), () => undefined);
    expect(await runs.get(run.runId)).toMatchObject({
      verdict: 'failed',
      evidence: { report: correctedKey },
    });
  });

  test('agrees later, when rows were only added', async () => {
    await publishDay(PARTY_A, 1, 2);
    await publishDay(PARTY_B, 1, 3);
    const first = await night();
    await publishDay(PARTY_B, 2, 1);
    await addParties(pool, ['cc'.repeat(32)]);
    const second = await night();
    expect(await compare(first)).toMatchObject({
      problemCount: 0,
      same: 2,
      grown: 0,
      lists: 'same',
    });
    // The second names one ledger; the first, which it follows, the other.
    expect(await compare(second)).toMatchObject({ problemCount: 0, same: 2 });
  });

  test.each([
    [
      'a ledger lost a segment',
      () => removeSegmentsOf(pool, PARTY_B),
      ['LEDGER_SHRANK', 'LEDGERS_SHRANK'],
    ],
    [
      'a segment holds other rows',
      () => falsifyDigests(pool, PARTY_B),
      ['LEDGER_DIFFERS'],
    ],
    [
      'a party is gone from the list',
      () => removeParty(pool, PARTY_B),
      ['HELD_LIST_SHRANK'],
    ],
    [
      'a party was replaced',
      () => renameParty(pool, PARTY_B, 'x'),
      ['HELD_LIST_DIFFERS'],
    ],
  ])('is contradicted where %s', async (_what, damage, codes) => {
    await publishDay(PARTY_A, 1, 2);
    await publishDay(PARTY_B, 1, 3);
    const told = await night();
    await emptyCoverage(pool);
    await damage();
    expect((await compare(told)).problems.map(({ code }) => code)).toEqual(
      codes,
    );
  });

  test('names a report that is missing before it', async () => {
    await publishDay(PARTY_A, 1, 2);
    const first = await night();
    const second = await night();
    await world.objects.remove(first.key, signal);
    expect((await compare(second)).problems).toMatchObject([
      { code: 'REPORT_MISSING', subject: first.key },
    ]);
  });

  test('comes back into an empty database with its run', async () => {
    const { run, key } = await night();
    await emptyRuns(pool);
    const problems: string[] = [];
    const restore = (): Promise<number> =>
      restoreReports(deps(), (where) => problems.push(where));
    await world.objects.publishBytes(
      'runs/20230101T000000Z.nonsense.json',
      Buffer.from('{}'),
      signal,
    );
    expect([await restore(), await restore()]).toEqual([1, 0]);
    expect(await runs.get(run.runId)).toMatchObject({
      kind: 'nightly',
      verdict: 'complete',
      evidence: { report: key },
    });
    expect(problems).toEqual(
      Array(2).fill('runs/20230101T000000Z.nonsense.json'),
    );
  });

  test('is refused where the object is not a report', () => {
    expect(() => decodeReport('{"format": 1}', 'x.json')).toThrow(
      expect.objectContaining({ code: 'REPORT_INVALID' }),
    );
  });
});
