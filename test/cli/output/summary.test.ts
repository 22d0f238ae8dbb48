import { expect, test } from 'vitest';
import { runSummary } from '../../../src/cli/output/summary.ts';

const RUN = {
  runId: '0199-run',
  state: 'done',
  startedAt: '2026-11-21T00:00:00.000Z',
  finishedAt: '2026-11-21T00:00:12.500Z',
};
const SYNC = { verdict: 'complete', rows: '1200', newRows: '3', pages: 2, asOfHeight: '99' };
const VERIFY = {
  verdict: 'complete',
  checked: { segments: 4, objectBytes: '2048', warehouseRows: '9', lakeRows: '12' },
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
    '  parties      1,200 and network listed, 3 new, in 2 pages, as of block 99',
    '  checkpoints  1 listed (repeats included), 3 new, in 2 pages, as of block 99',
    '  exports      2 parties, 8 new entries (9 rows published, 1 replaced), in 1 segment',
    '  load         9 rows of 1 segment into the warehouse',
    '  lake         moment 2: 12 rows in 3 files, 1.0 KiB',
    '  verify       4 segments (2.0 KiB as stored), 9 entries in the warehouse, 12 rows in all tables of the lake: every sum agrees',
    '  source       4 requests, 1.5 KiB received',
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
      lists: { parties: { ...SYNC, verdict: 'incomplete', missing: ['the end\u001B[2J was not reached'] } },
      exports: {
        verdict: 'incomplete',
        parties: 1,
        newRows: '0',
        newSegments: '0',
        failed: 1,
        failures: [
          { partyId: 'ab', outcome: { error: { code: 'EXPORT_REFUSED', message: 'Cannot export: 500' } } },
        ],
      },
    },
  });
  expect(summary).toContain('  parties      incomplete: 1,200 listed');
  expect(summary).toContain('  exports      incomplete: 1 party, 0 new entries, in 0 segments, 1 failed');
  expect(summary).toContain('  because      the end·[2J was not reached');
  expect(summary).toContain('  because      party ab: Cannot export: 500 (EXPORT_REFUSED)');
  expect(summary).toContain('  evidence     npx ledger-mirror runs 0199-run');
});

test('the summary tells an error of a run without other evidence', () => {
  const evidence = { error: { code: 'SOURCE_UNREACHABLE', message: 'Cannot reach the source' } };
  expect(
    runSummary({ ...RUN, kind: 'sync', subject: 'parties', verdict: 'failed', evidence }).split('\n'),
  ).toEqual([
    '! sync parties: failed in 12 s',
    '  because      Cannot reach the source (SOURCE_UNREACHABLE)',
    '  evidence     npx ledger-mirror runs 0199-run',
    '',
  ]);
});

test('the summary tells in words why something is missing', () => {
  const meta = { message: 'Cannot list parties: the source answers 401', status: 401 };
  const missing = [{ code: 'HEAD', reasons: [{ code: 'SOURCE_UNAUTHORIZED', meta }] }];
  const evidence = { ...SYNC, missing };
  expect(runSummary({ ...RUN, kind: 'sync', subject: 'parties', verdict: 'failed', evidence })).toContain(
    '  because      Cannot list parties: the source answers 401 (SOURCE_UNAUTHORIZED)\n',
  );
});
