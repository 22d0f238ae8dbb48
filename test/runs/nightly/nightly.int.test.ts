/**
 * What a nightly run asks for, what it concludes and what it tells; over doubles of the
 * stages.
 */
import { describe, expect, test } from 'vitest';
import { PermanentError, RetryableError } from '../../../src/errors/errors.ts';
import type { Stages } from '../../../src/runs/job.ts';
import { describeRun } from '../../../src/runs/run-document.ts';
import { COVERED } from '../stages-double.ts';
import type { Completeness } from '../../../src/status/store/completeness.ts';
import {
  addExports,
  daysAgo,
  emptyLedgers,
} from '../../support/mirror-arrange.ts';
import { nightlyLedgers } from '../../support/mirror-state.ts';
import {
  FIRST,
  nightlyWorlds,
  PARTIES,
  runNight,
  SECOND,
  THIRD,
} from './nightly-world.ts';
import { COMPLETE } from '../stages-double.ts';

const { database, openWorld } = await nightlyWorlds();

describe('a nightly run', () => {
  test('syncs both lists, exports every party that can be, loads and verifies', async () => {
    await using world = await openWorld({
      export: async () => ({
        verdict: 'complete',
        evidence: { rows: '7', replacedRows: '2', bytes: '70', segments: '1' },
      }),
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('complete');
    expect(run.evidence['exports']).toMatchObject({
      parties: 3,
      failed: 0,
      newRows: '21',
      replacedRows: '6',
      newBytes: '210',
      newSegments: '3',
    });
    expect(new Set(world.asked.slice(0, 2))).toEqual(
      new Set(['sync parties', 'sync checkpoints']),
    );
    expect(new Set(world.asked.slice(2, 5))).toEqual(
      new Set(PARTIES.map((id) => `export ${id}`)),
    );
    expect(world.asked.slice(5)).toEqual(['load', 'verify']);
  });

  test('ends where Postgres refuses the evidence of one export, which is settled with a bare code', async () => {
    await database.pool.query(`
      create function mirror.refuse_poison() returns trigger language plpgsql as $$
      begin
        if new.outcome::text like '%poison%' then raise exception 'no such text' using errcode = '22P05'; end if;
        return new;
      end $$;
      create trigger refuse_poison before update on mirror.nightly_units
        for each row execute function mirror.refuse_poison()`);
    try {
      await using world = await openWorld({
        export: async ({ partyId }) => ({
          verdict: 'complete',
          evidence: {
            rows: '7',
            bytes: '70',
            segments: '1',
            ...(partyId === SECOND ? { note: 'poison' } : {}),
          },
        }),
      });
      const run = await runNight(world);
      expect(run.verdict).toBe('incomplete');
      expect(await nightlyLedgers(database.pool)).toEqual([
        {
          partyId: FIRST,
          state: 'done',
          outcome: expect.objectContaining({ verdict: 'complete', rows: '7' }),
        },
        {
          partyId: SECOND,
          state: 'done',
          outcome: { verdict: 'incomplete', code: 'EVIDENCE_UNREADABLE' },
        },
        {
          partyId: THIRD,
          state: 'done',
          outcome: expect.objectContaining({ verdict: 'complete', rows: '7' }),
        },
      ]);
    } finally {
      await database.pool.query('drop function mirror.refuse_poison cascade');
    }
  });

  test('asks only the parties that were chosen, and no more than the limit', async () => {
    await using world = await openWorld(
      {},
      {
        nightlyParties: { kind: 'list', ids: [FIRST, SECOND] },
        nightlyExportsMax: 1,
      },
    );
    const run = await runNight(world);
    // One of the two was left: that is no complete night, however well the other went.
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['exports']).toMatchObject({
      verdict: 'incomplete',
      due: 2,
      parties: 1,
      deferred: 1,
      deferredSince: null,
      deferredNeverAsked: 1,
    });
    expect(world.asked.filter((ask) => ask.startsWith('export'))).toEqual([
      `export ${FIRST}`,
    ]);
  });

  test('is incomplete, not stopped, where one party fails for ever, and names it', async () => {
    await using world = await openWorld({
      export: async ({ partyId }) => {
        if (partyId === SECOND)
          throw new PermanentError('Cannot export: refused', {
            code: 'EXPORT_REFUSED',
          });
        return COMPLETE;
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['exports']).toMatchObject({
      parties: 2,
      failed: 1,
      failures: [
        { partyId: SECOND, outcome: { error: { code: 'EXPORT_REFUSED' } } },
      ],
    });
    expect(world.asked).toContain('verify');
  });

  test('is complete where the store could not be cleared up, and says so', async () => {
    await using world = await openWorld({
      tidy: async () => {
        throw new PermanentError('Cannot list unfinished uploads', {
          code: 'OBJECT_STORE_REFUSED',
        });
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('complete');
    expect(run.evidence['untidy']).toMatchObject({
      code: 'OBJECT_STORE_REFUSED',
    });
    expect(run.evidence['verify']).toMatchObject({ verdict: 'complete' });
  });

  test('tries an export again after a retryable error', async () => {
    let tries = 0;
    await using world = await openWorld({
      export: async ({ partyId }) => {
        if (partyId === THIRD) tries += 1;
        if (partyId === THIRD && tries < 3)
          throw new RetryableError('Cannot yet', {
            code: 'TEST',
            retryAfterMs: 20,
          });
        return COMPLETE;
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('complete');
    expect(tries).toBe(3);
  });

  test.each(['incomplete', 'suspicious'] as const)(
    'is %s where one export says that it is',
    async (verdict) => {
      await using world = await openWorld({
        export: async ({ partyId }) =>
          partyId === SECOND ? { verdict, evidence: { rows: '0' } } : COMPLETE,
      });
      const run = await runNight(world);
      expect([run.verdict, run.evidence['exports']]).toMatchObject([
        verdict,
        { [verdict]: 1 },
      ]);
    },
  );

  test('is incomplete where a listed ledger is not covered, or a doubt is open', async () => {
    const covers = {
      listed: 4,
      configured: null,
      wanted: 4,
      covered: 3,
      neverAsked: 1,
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
      coveredTo: null,
      openDoubts: 0,
    };
    await using world = await openWorld(
      {},
      { completeness: async () => covers },
    );
    const run = await runNight(world);
    expect([run.verdict, run.evidence['covers']]).toMatchObject([
      'incomplete',
      { covered: 3, wanted: 4 },
    ]);
    await using other = await openWorld(
      {},
      { completeness: async () => ({ ...covers, covered: 4, openDoubts: 1 }) },
    );
    expect((await runNight(other)).verdict).toBe('incomplete');
  });

  test.each([
    ['LIST_NOT_READ', { unreadLists: ['parties'] }],
    ['IN_DOUBT', { openDoubts: 1 }],
    ['GAP_KNOWN', { knownGaps: 1, unconfirmedGaps: 1 }],
    ['PARTIES_NOT_LISTED', { unlisted: 1 }],
    ['LEDGERS_NOT_COVERED', { wanted: 4 }],
    ['LEDGERS_QUARANTINED', { quarantined: 1 }],
    ['SEGMENTS_NOT_LOADED', { notLoaded: 1 }],
  ] as const)(
    'is incomplete by %s, as the status is, and its notice names the reason',
    async (reason, changed) => {
      await using world = await openWorld(
        {},
        { completeness: async () => ({ ...COVERED, ...changed }) },
      );
      const run = await runNight(world);
      expect(run.verdict).toBe('incomplete');
      expect(describeRun(run).evidence['mirror']).toEqual({
        complete: false,
        reasons: [reason, 'STREAM_NOT_PROVEN'],
      });
    },
  );

  test('is complete beside a confirmed gap, and says that the mirror is not', async () => {
    await using world = await openWorld(
      {},
      { completeness: async () => ({ ...COVERED, knownGaps: 1 }) },
    );
    const run = await runNight(world);
    expect([run.verdict, run.evidence['mirror']]).toEqual([
      'complete',
      { complete: false, reasons: ['GAP_KNOWN'] },
    ]);
  });

  test('reports the coverage that its verdict was computed from, whatever is covered since', async () => {
    let reads = 0;
    const completeness = async () => {
      const openDoubts = reads;
      reads += 1;
      return {
        listed: 3,
        configured: null,
        wanted: 3,
        covered: 3,
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
        coveredTo: null,
        openDoubts,
      };
    };
    const reported: unknown[] = [];
    const publishReport: Stages['publishReport'] = async (_run, outcome) => {
      reported.push((outcome.evidence['covers'] as Completeness).openDoubts);
      return outcome;
    };
    await using world = await openWorld({ publishReport }, { completeness });
    expect([(await runNight(world)).verdict, reported]).toEqual([
      'complete',
      [0],
    ]);
  });

  test('does not wait for ledgers that nobody wants any more, however long ago they were asked', async () => {
    await addExports(database.pool, [
      { party_id: THIRD, last_asked_at: daysAgo(40) },
    ]);
    try {
      await using all = await openWorld({}, { nightlyExportsMax: 2 });
      expect((await runNight(all)).evidence['exports']).toMatchObject({
        late: 1,
      });
      await using world = await openWorld(
        {},
        { nightlyParties: { kind: 'list', ids: [FIRST, SECOND] } },
      );
      const run = await runNight(world);
      expect([run.verdict, run.evidence['exports']]).toMatchObject([
        'complete',
        { late: 0 },
      ]);
    } finally {
      await emptyLedgers(database.pool);
    }
  });

  test('merges nothing behind its load where it is delivered again, and tells what it merged before', async () => {
    const merged: string[] = [];
    let verified = 0;
    await using world = await openWorld({
      mergeSegments: async () => {
        merged.push('segments');
        return { segments: merged.length };
      },
      verify: async () => {
        verified += 1;
        if (verified === 1)
          throw new RetryableError('Cannot yet', {
            code: 'TEST',
            retryAfterMs: 20,
          });
        return COMPLETE;
      },
    });
    const run = await runNight(world);
    expect([merged.length, verified, run.evidence['merged']]).toEqual([
      1,
      2,
      { segments: 1 },
    ]);
  });

  test('publishes its report with the reason where an error ends it', async () => {
    const published: unknown[] = [];
    await using world = await openWorld({
      load: async () => COMPLETE,
      verify: async () => {
        throw new PermanentError(
          'Cannot verify: the lake is of another mirror',
          {
            code: 'LAKE_FOREIGN',
          },
        );
      },
      publishReport: async ({ runId }, outcome) => {
        published.push({ runId, ...outcome });
        return {
          ...outcome,
          evidence: { ...outcome.evidence, report: 'runs/x.json' },
        };
      },
    });
    const run = await runNight(world);
    expect(run).toMatchObject({
      verdict: 'failed',
      evidence: { error: { code: 'LAKE_FOREIGN' }, report: 'runs/x.json' },
    });
    expect(published).toMatchObject([
      {
        runId: run.runId,
        verdict: 'failed',
        evidence: { error: { code: 'LAKE_FOREIGN' } },
      },
    ]);
  });

  test('ends whatever its ledgers say, even what cannot be written down', async () => {
    const evidence = [
      {
        deep: {
          get rows(): string {
            throw new Error('cannot be read');
          },
        },
      },
      {
        rows: '1',
        text: 'a\0b \ud800',
        big: 10n ** 40n,
        none: undefined,
        odd: [Number.NaN, () => 1],
      },
      {
        rows: '1',
        text: 'x'.repeat(10 ** 6),
        meta: { huge: Number.MAX_VALUE },
      },
    ];
    await using world = await openWorld({
      export: async () => ({
        verdict: 'complete',
        evidence: evidence.shift() ?? {},
      }),
    });
    const run = await runNight(world);
    expect(run.evidence['exports']).toMatchObject({ failed: 0, unasked: 0 });
    const states = (await nightlyLedgers(database.pool)).map(
      ({ state }) => state,
    );
    expect(
      states.filter((state) => state === 'due' || state === 'queued'),
    ).toEqual([]);
  });

  test.each([
    ['suspicious', { verdict: 'suspicious', evidence: {} }],
    ['incomplete', { verdict: 'incomplete', evidence: {} }],
  ] as const)(
    'is as %s as the worst of its parts',
    async (verdict, outcome) => {
      await using world = await openWorld({
        sync: async ({ list }) => (list === 'checkpoints' ? outcome : COMPLETE),
      });
      expect((await runNight(world)).verdict).toBe(verdict);
    },
  );

  test('is incomplete where a list could not be read, and exports the parties that are known', async () => {
    await using world = await openWorld({
      sync: async () => {
        throw new PermanentError('Cannot read the list', {
          code: 'PAGE_SHAPE',
        });
      },
    });
    const run = await runNight(world);
    expect(run.verdict).toBe('incomplete');
    expect(run.evidence['lists']).toMatchObject({
      parties: { error: { code: 'PAGE_SHAPE' } },
    });
    expect(world.asked.filter((ask) => ask.startsWith('export'))).toHaveLength(
      3,
    );
  });
});
