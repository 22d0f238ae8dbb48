import { expect, test } from 'vitest';
import { runReport } from '../../../src/cli/output/report.ts';

const RUN = {
  runId: '0199-run',
  kind: 'export',
  subject: 'ab'.repeat(32),
  state: 'done',
  startedAt: '2026-11-21T00:00:00.000Z',
  finishedAt: '2026-11-21T00:00:12.500Z',
};

test('the report of a run tells how it ended and why', () => {
  const report = runReport({
    ...RUN,
    verdict: 'incomplete',
    evidence: {
      rows: '12345678901234567890',
      plainBytes: '1536',
      asOfHeight: '1234567',
      elapsedMs: 1500,
      wholeRange: false,
      nothing: null,
      leftOut: { otherParty: 3, none: [] },
      segments: Array.from({ length: 22 }, (_, index) => ({ key: `ledger/${index}`, rows: '1000' })),
      error: { code: 'SOURCE_BROKE', message: 'cut\u001B[2J short' },
    },
  });
  expect(report.split('\n').slice(0, 13)).toEqual([
    `! export ${'ab'.repeat(32)}: incomplete in 12 s`,
    '  run  0199-run',
    '  error',
    '    code     SOURCE_BROKE',
    '    message  cut·[2J short',
    '  rows          12,345,678,901,234,567,890',
    '  plain bytes   1.5 KiB',
    '  as of height  1234567',
    '  elapsed ms    1.5 s',
    '  whole range   no',
    '  left out',
    '    other party  3',
    '    none  none',
  ]);
  expect(report).toContain('  segments (22)\n    - key ledger/0, rows 1,000\n');
  expect(report.endsWith('    … 2 more\n')).toBe(true);
});

test('the report of a run under way says what it is doing', () => {
  const report = runReport({ ...RUN, state: 'running', verdict: null, finishedAt: null, evidence: {} });
  expect(report).toBe(`! export ${'ab'.repeat(32)}: running\n  run  0199-run\n`);
});

test('the report of a complete run without evidence is one line and its id', () => {
  expect(runReport({ ...RUN, verdict: 'complete', evidence: undefined })).toBe(
    `✓ export ${'ab'.repeat(32)}: complete in 12 s\n  run  0199-run\n`,
  );
});

test('the report stays bounded however deep the evidence is', () => {
  const deep: Record<string, unknown> = { a: { b: { c: { d: { e: { f: { g: 'x'.repeat(9_999) } } } } } } };
  expect(runReport({ ...RUN, verdict: 'complete', evidence: deep }).length).toBeLessThan(1_000);
});
