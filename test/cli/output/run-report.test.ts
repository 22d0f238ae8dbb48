import { expect, test } from 'vitest';
import { runReport } from '../../../src/cli/output/run-report.ts';

const RUN = {
  runId: '0199-run',
  kind: 'export',
  subject: 'ab'.repeat(32),
  state: 'done',
  queuedAt: '2026-11-21T00:00:00.000Z',
  startedAt: '2026-11-21T00:00:00.000Z',
  finishedAt: '2026-11-21T00:00:12.500Z',
};
const NOW_MS = Date.parse('2026-11-21T00:01:00.000Z');

function report(changes: object): string[] {
  return runReport({ ...RUN, verdict: 'incomplete', ...changes }).split('\n');
}

test('the report of a nightly run says in sentences what it did, in order', () => {
  const lines = report({
    kind: 'nightly',
    subject: 'now',
    verdict: 'complete',
    evidence: {
      load: {
        verdict: 'complete',
        rows: '34230',
        segments: '150',
        lake: { version: 1, rows: '43021', files: 18, bytes: '1463681' },
      },
      lists: {
        parties: {
          verdict: 'complete',
          list: 'parties',
          network: 'stored',
          rows: '151',
          newRows: '151',
          pages: 4,
          requests: 6,
          readings: 2,
          asOfHeight: '6480001',
        },
        checkpoints: {
          verdict: 'complete',
          list: 'checkpoints',
          rows: '2137',
          newRows: '0',
          pages: 22,
          requests: 23,
          audit: { served: '1967' },
        },
      },
      exports: {
        verdict: 'complete',
        parties: 151,
        newRows: '34230',
        replacedRows: '30',
        newSegments: '150',
        failed: 0,
      },
      verify: {
        verdict: 'complete',
        problemCount: 0,
        checked: {
          segments: '150',
          objectBytes: '2048',
          warehouseRows: '34230',
          lakeRows: '43021',
        },
      },
      source: { requests: { lists: 9, exports: 151 }, retries: 2, bytes: 1536 },
    },
  });
  expect(lines.slice(0, lines.indexOf('Figures'))).toEqual([
    '✓ nightly now: complete in 12 s',
    '  run  0199-run',
    '',
    'What happened',
    '  parties      151 parties and network listed, all new; read 2 times in 4 pages by 6 requests; proven complete as of block 6480001',
    '  checkpoints  2,137 rows listed (1,967 checkpoints: the source lists some twice, and each is held once), none of them new; read in 22 pages by 23 requests',
    '  exports      151 ledgers asked: 34,200 new entries (34,230 rows published, of which 30 replace earlier ones: an open segment is published again as a whole) in 150 segments',
    '  load         34,230 rows of 150 segments brought into the warehouse',
    '  lake         43,021 rows over all tables in 18 files, 1.3 MiB; version 1',
    '  verify       150 segments (2.0 KiB as stored), 34,230 entries in the warehouse and 43,021 rows over all tables of the lake compared: every sum agrees',
    '  source       160 requests to the source, 2 of them again, 1.5 KiB received',
    '',
  ]);
});

test('the report of a run begins with doubts, gaps and failures, and what to do about each', () => {
  const lines = report({
    kind: 'nightly',
    subject: 'now',
    verdict: 'suspicious',
    evidence: {
      mirror: { complete: false, reasons: ['SEGMENTS_NOT_LOADED'] },
      lists: {
        parties: {
          verdict: 'suspicious',
          doubts: [{ code: 'ROW_TWICE', message: 'party ab comes twice' }],
          knownGaps: [
            { belowKey: '7', aboveKey: '9', foundAt: '2026-11-20T00:00:00Z' },
          ],
        },
      },
      exports: {
        verdict: 'incomplete',
        parties: 1,
        failures: [
          { partyId: 'cd', outcome: { error: { message: 'cut short' } } },
          {
            partyId: 'ef',
            outcome: { error: { code: 'SOURCE_BUSY', message: 'too much' } },
          },
        ],
      },
    },
  });
  expect(lines.slice(2, lines.indexOf('What happened'))).toEqual([
    '',
    'Needs attention',
    '  ! party ab comes twice (ROW_TWICE)',
    '    Nothing: the next sync reads the whole list again. If it lasts, the source is at fault: its operator can see the rows in seen.',
    '  ! rows are missing between 7 and 9, found 2026-11-20 00:00:00 UTC',
    '    They are lost unless the source serves them again; status shows the rows around the gap.',
    '  ! party cd: cut short',
    "    'ledger-mirror export --party cd' tries it again.",
    '  ! party ef: too much (SOURCE_BUSY)',
    '    Nothing at first; if it lasts, lower SOURCE_RATE.',
    '  ! Published segments are not in the warehouse, and no run is loading them. (SEGMENTS_NOT_LOADED)',
    "    'ledger-mirror load'.",
    '',
  ]);
});

test('the report of a run has every figure in a table, and never steers the terminal', () => {
  const lines = report({
    evidence: {
      rows: '12345678901234567890',
      wholeRange: false,
      waitedMs: 2_500,
      leftOut: { otherParty: 3, none: [], oddBytes: '2048' },
      error: { code: 'SOURCE_BROKE', message: 'cut\u001B[2J short\u202E' },
    },
  });
  expect(lines.slice(2)).toEqual([
    '',
    'Needs attention',
    '  ! cut·[2J short· (SOURCE_BROKE)',
    '    Nothing at first; if it lasts, look at the network between.',
    '',
    'What happened',
    '  export       12,345,678,901,234,567,890 new entries, 0 B as CSV, in 0 segments',
    '',
    'Figures',
    '  part      figure       value',
    '  ────────  ───────────  ──────────────────────────',
    '            rows         12,345,678,901,234,567,890',
    '            waited       2.5 s',
    '  left out  other party  3',
    '  left out  odd bytes    2.0 KiB',
    '  None or zero: whole range, left out none',
    "  'ledger-mirror runs 0199-run --json' has all of it, uncut.",
    '',
  ]);
});

test('the report of a run is bounded, whatever its evidence', () => {
  const problems = Array.from({ length: 10_000 }, (_, nth) => ({
    nth,
    reason: `${nth} ${'x'.repeat(10_000)}`,
  }));
  const many = Object.fromEntries(
    problems.map(({ reason }, nth) => [`figure${nth}`, reason]),
  );
  const text = report({ evidence: { problems, many } }).join('\n');
  expect(text).toContain('  … and 9,980 more');
  expect(text).toContain('10,000, see above');
  expect(text).toContain('  … and 9,881 more');
  expect(text.length).toBeLessThan(60_000);
});

test('the report of a run that is not complete without saying why names its log', () => {
  expect(report({ evidence: {} })).toEqual([
    `! export ${'ab'.repeat(32)}: incomplete in 12 s`,
    '  run  0199-run',
    '',
    'Needs attention',
    '  ! Its evidence does not say why.',
    "    'ledger-mirror logs 0199-run' shows what it logged.",
    '',
  ]);
});

test('the report of a cancelled run says what stays', () => {
  expect(
    report({ state: 'cancelled', verdict: null, evidence: {} }),
  ).toContainEqual(expect.stringMatching(/^ {2}! It was cancelled\. /));
});

test('the report of a complete run without evidence is one line and its id', () => {
  expect(report({ verdict: 'complete', evidence: undefined })).toEqual([
    `✓ export ${'ab'.repeat(32)}: complete in 12 s`,
    '  run  0199-run',
    '',
  ]);
});

const UNDER_WAY = {
  ...RUN,
  state: 'running',
  verdict: null,
  finishedAt: null,
  evidence: {},
};

test.each([
  [
    'running',
    {},
    [
      '  It is under way; it began 1 min ago.',
      '  exporting: 2.0 KiB (12 rows)',
      '  exports: 3 of 151 parties',
    ],
  ],
  [
    'running',
    { lines: [] },
    [
      '  It is under way; it began 1 min ago.',
      '  It reports no step at the moment.',
    ],
  ],
  [
    'running',
    { isGone: true },
    [
      '  No process is working on it any more; it began 1 min ago.',
      '  A worker or the next nightly run continues from what it committed.',
    ],
  ],
  [
    'queued',
    {},
    [
      '  It waits for a worker; it was ordered 1 min ago.',
      "  If nothing takes it: 'ledger-mirror status' says how many workers run.",
    ],
  ],
])(
  'the report of a run that is %s says what it does now',
  (state, changes, now) => {
    const text = runReport(
      { ...UNDER_WAY, state },
      {
        lines: [
          {
            label: 'exporting',
            done: '2048',
            unit: 'bytes',
            note: '12 rows',
          },
          { label: 'exports', done: '3', total: '151', unit: 'parties' },
        ],
        isGone: false,
        nowMs: NOW_MS,
        ...changes,
      },
    );
    expect(text.split('\n')).toEqual([
      `! export ${'ab'.repeat(32)}: ${state}`,
      '  run  0199-run',
      '',
      'Now',
      ...now,
      '',
    ]);
  },
);
