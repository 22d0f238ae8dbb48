import { expect, test } from 'vitest';
import { runReport, runSummary } from '../../../src/cli/output/run-text.ts';

const RUN = {
  runId: '0199-run',
  kind: 'export',
  subject: 'ab'.repeat(32),
  state: 'done',
  startedAt: '2026-11-21T00:00:00.000Z',
  finishedAt: '2026-11-21T00:00:12.500Z',
};

test('the report of a run has its evidence as it is, the error first, and never steers the terminal', () => {
  const report = runReport({
    ...RUN,
    verdict: 'incomplete',
    evidence: {
      rows: '12345678901234567890',
      wholeRange: false,
      leftOut: { otherParty: 3, none: [] },
      error: { code: 'SOURCE_BROKE', message: 'cut\u001B[2J short\u202e' },
    },
  });
  const [head, run, ...evidence] = report.split('\n');
  expect([head, run]).toEqual([
    `! export ${'ab'.repeat(32)}: incomplete in 12 s`,
    '  run  0199-run',
  ]);
  expect(evidence).toEqual([
    '{',
    String.raw`  error: { code: 'SOURCE_BROKE', message: 'cut\x1B[2J short·' },`,
    "  rows: '12345678901234567890',",
    '  wholeRange: false,',
    '  leftOut: { otherParty: 3, none: [] }',
    '}',
    '',
  ]);
});

test('the report of a run is bounded, whatever its evidence', () => {
  const problems = Array.from({ length: 10_000 }, (_, nth) => ({
    nth,
    reason: 'x'.repeat(10_000),
  }));
  const report = runReport({
    ...RUN,
    verdict: 'incomplete',
    evidence: { problems },
  });
  expect(report).toContain('9980 more items');
  expect(report.length).toBeLessThan(30_000);
});

test('the report of a run under way says what it is doing', () => {
  const report = runReport({
    ...RUN,
    state: 'running',
    verdict: null,
    finishedAt: null,
    evidence: {},
  });
  expect(report).toBe(
    `! export ${'ab'.repeat(32)}: running\n  run  0199-run\n`,
  );
});

test('the report of a complete run without evidence is one line and its id', () => {
  expect(runReport({ ...RUN, verdict: 'complete', evidence: undefined })).toBe(
    `✓ export ${'ab'.repeat(32)}: complete in 12 s\n  run  0199-run\n`,
  );
});

const SYNC = {
  verdict: 'complete',
  rows: '1200',
  newRows: '3',
  pages: 2,
  asOfHeight: '99',
};
const VERIFY = {
  verdict: 'complete',
  checked: {
    segments: 4,
    objectBytes: '2048',
    warehouseRows: '9',
    lakeRows: '12',
  },
  problemCount: 0,
};

test('the summary of a nightly run has a line for each part', () => {
  const summary = runSummary({
    ...RUN,
    kind: 'nightly',
    subject: 'now',
    verdict: 'complete',
    evidence: {
      lists: {
        parties: { ...SYNC, list: 'parties', network: 'stored' },
        checkpoints: { ...SYNC, list: 'checkpoints', rows: '1' },
      },
      exports: {
        verdict: 'complete',
        parties: 2,
        newRows: '9',
        replacedRows: '1',
        newSegments: '1',
        failed: 0,
      },
      load: {
        verdict: 'complete',
        rows: '9',
        segments: 1,
        lake: { version: 2, rows: '12', files: 3, bytes: '1024' },
      },
      verify: VERIFY,
      source: { requests: { lists: 2, exports: 2 }, retries: 0, bytes: 1536 },
    },
  });
  expect(summary.split('\n')).toEqual([
    '✓ nightly now: complete in 12 s',
    '  parties      1,200 rows, 3 new rows, 2 pages, as of height 99',
    '  checkpoints  1 row, 3 new rows, 2 pages, as of height 99',
    '  exports      9 new rows, 2 parties, 1 replaced row, 1 new segment',
    '  load         9 rows, 1 segment',
    '  lake         12 rows, version 2, 3 files, 1.0 KiB',
    '  verify       0 problems, 4 segments, object bytes 2.0 KiB, 9 warehouse rows, 12 lake rows',
    '  source       1.5 KiB, 2 lists, 2 exports',
    '  run          npx ledger-mirror runs 0199-run',
    '',
  ]);
});

test('the summary says why a run is not complete, and never steers the terminal', () => {
  const summary = runSummary({
    ...RUN,
    kind: 'nightly',
    subject: 'now',
    verdict: 'incomplete',
    evidence: {
      lists: {
        parties: {
          ...SYNC,
          verdict: 'incomplete',
          missing: ['the end\u001B[2J was not reached'],
        },
      },
      exports: {
        verdict: 'incomplete',
        parties: 1,
        newRows: '0',
        newSegments: '0',
        failed: 1,
        failures: [
          {
            partyId: 'ab',
            outcome: {
              error: { code: 'EXPORT_REFUSED', message: 'Cannot export: 500' },
            },
          },
        ],
      },
    },
  });
  expect(summary).toContain('  parties      incomplete: 1,200 rows');
  expect(summary).toContain(
    '  exports      incomplete: 0 new rows, 1 party, 1 failed',
  );
  expect(summary).toContain('  because      the end·[2J was not reached');
  expect(summary).toContain(
    '  because      party ab: Cannot export: 500 (EXPORT_REFUSED)',
  );
  expect(summary).toContain('  evidence     npx ledger-mirror runs 0199-run');
});

test('the summary tells an error of a run without other evidence', () => {
  const evidence = {
    error: { code: 'SOURCE_UNREACHABLE', message: 'Cannot reach the source' },
  };
  expect(
    runSummary({
      ...RUN,
      kind: 'sync',
      subject: 'parties',
      verdict: 'failed',
      evidence,
    }).split('\n'),
  ).toEqual([
    '! sync parties: failed in 12 s',
    '  because      Cannot reach the source (SOURCE_UNREACHABLE)',
    '  evidence     npx ledger-mirror runs 0199-run',
    '',
  ]);
});

test('the summary tells in words why something is missing', () => {
  const meta = {
    message: 'Cannot list parties: the source answers 401',
    status: 401,
  };
  const missing = [
    { code: 'HEAD', reasons: [{ code: 'SOURCE_UNAUTHORIZED', meta }] },
  ];
  const evidence = { ...SYNC, missing };
  expect(
    runSummary({
      ...RUN,
      kind: 'sync',
      subject: 'parties',
      verdict: 'failed',
      evidence,
    }),
  ).toContain(
    '  because      Cannot list parties: the source answers 401 (SOURCE_UNAUTHORIZED)\n',
  );
});
