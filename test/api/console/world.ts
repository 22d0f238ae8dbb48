/**
 * A mirror that stands still: eleven weeks old, all of it made up and the same every
 * time. For pictures of the console.
 */
import { createHash } from 'node:crypto';
import type { ConsoleParts } from '../../../src/api/console/ports.ts';
import type { LakeQueries } from '../../../src/api/console/lake-queries.ts';
import type { RunDocument } from '../../../src/runs/run-schema.ts';
import { LAKE_TABLES } from '../../../src/lake/tables/columns.ts';
import { SHAPES } from '../../../src/lake/tables/tables.ts';
import { type Answers, CALM, NO_LAKE } from '../mirror.ts';
import {
  type Facts,
  type FixedParts,
  quiet,
  wholeFacts,
} from './fixed-console.ts';

const DAY_MS = 86_400_000;
const LAST_RUN_MS = Date.parse('2026-03-01T02:00:00Z');
const DAYS = 75;
const BAD_NIGHTLY_RUNS: Readonly<Record<number, NightlyRun['verdict']>> = {
  23: 'failed',
  41: 'incomplete',
  42: 'incomplete',
  60: 'suspicious',
};
const PARTIES = 240;

export function idOf(name: string): string {
  return createHash('sha256').update(name).digest('hex');
}

function uuid(n: number): string {
  return `01a1fc0b-e1b9-71c1-ace8-${n.toString(16).padStart(12, '0')}`;
}

function at(ms: number): string {
  return new Date(ms).toISOString();
}

type NightlyRun = Pick<
  RunDocument,
  'runId' | 'finishedAt' | 'state' | 'verdict'
> & {
  readonly at: string;
};

const NIGHTLY_RUNS: readonly NightlyRun[] = Array.from(
  { length: DAYS },
  (_, n) => ({
    runId: uuid(n),
    at: at(LAST_RUN_MS - n * DAY_MS),
    finishedAt: at(LAST_RUN_MS - n * DAY_MS + 660_000),
    state: 'done',
    verdict: BAD_NIGHTLY_RUNS[n] ?? 'complete',
  }),
);

const SUMMARIES = Array.from({ length: 25 }, (_, n) => ({
  partyId: idOf(`party ${n}`),
  rows: `${(25 - n) * 1_234}`,
  bytes: `${(25 - n) * 321_987}`,
  lastEntryAt: at(LAST_RUN_MS - n * 3_600_000),
  knownTo: at(LAST_RUN_MS),
  quarantinedAt: null,
}));

/** The statement of `party 0` for February 2026: two accounts that send to each other. */
export function statementOf(assetId: string): Answers {
  const general = { assetId, accountType: 'GENERAL', marketId: null };
  const margin = {
    assetId,
    accountType: 'MARGIN',
    marketId: idOf('market'),
  };
  const line = (day: number, account: typeof general | typeof margin) => ({
    ...account,
    at: at(Date.parse('2026-02-01T10:00:00Z') + day * DAY_MS),
    transferType: 'TRANSFER_FUNDS_DISTRIBUTE',
    counterpartyId: idOf('party 1'),
  });
  return {
    'read the accounts of a month': () => [
      {
        ...general,
        entries: '3',
        received: '5000000',
        sent: '1250000',
        before: ['1000000'],
        first: ['1000000'],
        closing: ['4750000'],
      },
      {
        ...margin,
        entries: '1',
        received: '250000',
        sent: '0',
        before: [],
        first: ['0'],
        closing: ['250000'],
      },
    ],
    'read the lines of a month': () => [
      { ...line(2, general), change: '5000000', balance: '6000000' },
      { ...line(9, general), change: '-1000000', balance: '5000000' },
      { ...line(17, general), change: '-250000', balance: '4750000' },
      { ...line(17, margin), change: '250000', balance: '250000' },
    ],
    'read how a month is known': () => [
      {
        missing: [],
        knownTo: '2026-03-01T02:00:00Z',
        isSentOnly: false,
        hasBegun: true,
        isOver: true,
        notLoaded: '0',
        faulty: '0',
        isQuarantined: false,
      },
    ],
  };
}

/** The ledger of `party 0`, with an account of each asset. */
export function ledgerOf(...assetIds: readonly string[]): Answers {
  const party = {
    ...SUMMARIES[0],
    firstSeenAt: '2025-12-16T02:01:00Z',
    isSentOnly: false,
    covered: [],
  };
  return {
    'read a party': () => [party],
    "list a party's accounts": () =>
      assetIds.map((assetId) => ({
        assetId,
        accountType: 'GENERAL',
        marketId: null,
        entries: '30850',
        lastAt: '2026-03-01T01:59:00Z',
      })),
    "list a party's transfer types": () => [
      { type: 'TRANSFER_FUNDS_DISTRIBUTE' },
    ],
  };
}

function runsOf(nightly: NightlyRun, index: number): readonly RunDocument[] {
  const startMs = Date.parse(nightly.at);
  const run = (
    kind: RunDocument['kind'],
    subject: string,
    n: number,
    from: number,
    to: number,
  ): RunDocument => ({
    runId: uuid(1_000 * (index + 1) + n),
    parentRunId: n === 0 ? null : uuid(1_000 * (index + 1)),
    kind,
    subject,
    state: 'done',
    verdict: n === 0 ? nightly.verdict : 'complete',
    evidence: { rows: '48312', requests: 52, newRows: '128' },
    queuedAt: at(startMs + from),
    startedAt: at(startMs + from),
    finishedAt: at(startMs + to),
    attempts: 1,
  });
  return [
    run('load', 'warehouse and lake', 3, 500_000, 590_000),
    run('sync', 'checkpoints', 2, 0, 31_000),
    run('sync', 'parties', 1, 0, 44_000),
    run('nightly', 'scheduled', 0, 0, 660_000),
  ];
}

const GROWTH = Array.from({ length: 60 }, (_, n) => ({
  at: at(LAST_RUN_MS - (60 - n) * DAY_MS),
  rows: `${2_000 + ((n * 7_919) % 5_000)}`,
  bytes: `${800_000 + n * 10_000}`,
}));

const TABLES = LAKE_TABLES.map((name, n) => ({
  name,
  comment: SHAPES[name].description,
  version: 75,
  rows: `${1_234_567 * (n + 1)}`,
  bytes: `${98_765_432 * (n + 1)}`,
  committedAt: at(LAST_RUN_MS + 590_000),
  columns: [
    { name: 'party_id', type: 'VARCHAR', comment: 'Whose it is.' },
    {
      name: 'vega_time',
      type: 'TIMESTAMPTZ',
      comment: 'When it happened, to the microsecond.',
    },
    {
      name: 'quantity',
      type: 'DECIMAL(38,0)',
      comment: 'How much moved, in the asset’s smallest unit.',
    },
  ],
  access: [
    {
      engine: 'DuckDB',
      line: `select * from delta_scan('s3://bucket/mirror/lake/${name}') limit 10`,
    },
    {
      engine: 'Python',
      line: `deltalake.DeltaTable("s3://bucket/mirror/lake/${name}").to_pandas()`,
    },
  ],
}));

const SETTINGS: ConsoleParts['settings'] = [
  {
    name: 'SOURCE_URL',
    value: 'https://ledger.example.com/',
    isSecret: false,
    origin: '.env',
    help: 'the source’s base URL',
  },
  {
    name: 'SOURCE_PAGE_SIZE',
    value: '1000',
    isSecret: false,
    origin: 'default',
    help: 'rows that a page of a list asks for',
  },
  {
    name: 'DATABASE_URL',
    value: '***',
    isSecret: true,
    origin: 'environment',
    help: 'Postgres; without it one is embedded',
  },
  {
    name: 'NIGHTLY_EXPORTS_MAX',
    value: null,
    isSecret: false,
    origin: 'unset',
    help: 'exports of a nightly run at most',
  },
];

/** All is well. */
export function calmFacts(): Facts {
  const whole = wholeFacts();
  return {
    live: quiet(),
    status: {
      ...whole,
      streams: whole.streams.map((stream) => ({
        ...stream,
        ...(stream.name === 'parties' ? { rows: `${PARTIES + 1}` } : {}),
        asOfBlock: '51234567',
      })),
      ledger: {
        segments: '1812',
        bytes: '9876543210',
        parties: `${PARTIES}`,
        notLoaded: '0',
        quarantined: '0',
      },
      coverage: {
        ...whole.coverage,
        listed: PARTIES,
        wanted: PARTIES,
        covered: PARTIES,
        coveredTo: at(LAST_RUN_MS),
      },
      work: {
        workers: 2,
        nextSlot: at(LAST_RUN_MS + DAY_MS),
        missedSlot: null,
        schedule: '0 2 * * * (UTC), audits 0 4 * * 0',
        otherSchedules: [],
      },
      nights: {
        ...whole.nights,
        nextAt: at(LAST_RUN_MS + DAY_MS),
        nextAuditAt: '2026-03-08T04:00:00Z',
      },
      lists: (['parties', 'checkpoints'] as const).map((list) => ({
        list,
        doubts: [],
        gaps: [],
        lastAuditAt: '2026-02-22T04:00:00Z',
      })),
    },
    runs: NIGHTLY_RUNS.slice(0, 4).flatMap(runsOf),
    settings: SETTINGS,
  };
}

/**
 * A nightly run goes on, one ledger is in quarantine, a list is in doubt, and one has a
 * gap.
 */
export function busyFacts(): Facts {
  const calm = calmFacts();
  const [nightly] = calm.runs.filter(({ kind }) => kind === 'nightly');
  if (nightly === undefined) throw new Error('the world has no nightly run');
  return {
    ...calm,
    status: {
      ...calm.status,
      streams: calm.status.streams.map((stream) =>
        stream.name === 'parties'
          ? { ...stream, verdict: 'suspicious' as const }
          : stream,
      ),
      ledger: { ...calm.status.ledger, quarantined: '1', notLoaded: '12' },
      coverage: {
        ...calm.status.coverage,
        covered: 231,
        openDoubts: 1,
        quarantined: 1,
        knownGaps: 1,
        unconfirmedGaps: 1,
        notLoaded: 12,
        isLoading: true,
      },
      knownGaps: '1',
      lists: [
        {
          list: 'parties',
          doubts: [
            {
              code: 'ROWS_INSERTED',
              message: '3 rows appeared below the overlap',
              since: at(LAST_RUN_MS),
            },
          ],
          gaps: [],
          lastAuditAt: '2026-02-22T04:00:00Z',
        },
        {
          list: 'checkpoints',
          doubts: [],
          gaps: [
            {
              belowKey: '51000000',
              aboveKey: '51000300',
              foundAt: at(LAST_RUN_MS),
              isConfirmed: false,
            },
          ],
          lastAuditAt: '2026-02-22T04:00:00Z',
        },
      ],
    },
    live: {
      ...quiet(),
      openRuns: [
        {
          ...nightly,
          state: 'running',
          verdict: null,
          finishedAt: null,
          startedAt: '2026-03-01T05:57:00Z',
        },
      ],
      nightly: {
        runId: nightly.runId,
        waiting: 90,
        done: 149,
        failed: 1,
        deferred: 0,
        firstAt: '2026-03-01T05:57:30Z',
      },
      inFlight: [0, 1, 2].map((n) => ({
        partyId: idOf(`party ${n}`),
        assetId: null,
        isAtSource: n === 0,
      })),
      quarantined: [
        {
          exportId: '7',
          partyId: idOf('party 7'),
          assetId: null,
          since: '2026-03-01T02:07:00Z',
          attempts: 5,
          reason: {
            code: 'STREAM_CUT',
            message: 'the export broke off at byte 4,194,304, five times',
          },
        },
      ],
    },
  };
}

/** The parties that there are, and one more, so that there is a page behind. */
export function listParties(): readonly object[] {
  return [...SUMMARIES, ...SUMMARIES.slice(0, 1)].map((row) => ({
    ...row,
    key: '25',
  }));
}

/** The console's parts over this world; what moves comes from the facts. */
export function worldParts(
  facts: Facts,
): FixedParts & { readonly lake: LakeQueries } {
  return {
    lake: {
      ...NO_LAKE,
      tables: async () => TABLES,
      questions: [
        {
          name: 'top-parties',
          title: 'who has the most entries',
          parameters: ['since'],
        },
      ],
    },
    answers: {
      'read how the mirror grew': () => GROWTH,
      'read the nightly runs': () => NIGHTLY_RUNS,
      'list parties': listParties,
      'read the time lines of ledgers': () =>
        SUMMARIES.slice(0, 8).map(({ partyId }, n) => ({
          partyId,
          assetId: null,
          state:
            facts.live.inFlight.length > n
              ? ('in flight' as const)
              : ('published' as const),
          firstEntryAt: at(LAST_RUN_MS - (40 + n) * DAY_MS),
          covered: [
            {
              from: at(LAST_RUN_MS - 60 * DAY_MS),
              to: at(LAST_RUN_MS - n * DAY_MS),
              open: false,
              rows: '1000',
            },
            {
              from: at(LAST_RUN_MS - n * DAY_MS),
              to: at(LAST_RUN_MS),
              open: true,
              rows: '12',
            },
          ],
        })),
    },
    progress: async (key) =>
      key.startsWith('export.')
        ? [{ label: 'exporting', done: '4194304', unit: 'bytes' }]
        : [],
    upkeep: async () => ({
      ...CALM,
      diskFreeBytes: '84825604096',
      diskBytes: '210000000000',
    }),
  };
}
