import { expect, test } from 'vitest';
import { runSummary } from '../../../src/cli/output/run-text.ts';

const RUN = {
  runId: '0199-run',
  kind: 'export',
  subject: 'ab'.repeat(32),
  state: 'done',
  startedAt: '2026-11-21T00:00:00.000Z',
  finishedAt: '2026-11-21T00:00:12.500Z',
};

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
