import { stripVTControlCharacters } from 'node:util';
import { describe, expect, test } from 'vitest';
import { openTerminal, readableLog } from '../../../src/cli/output/progress.ts';

function readable(record: unknown): string {
  return stripVTControlCharacters(readableLog(`${JSON.stringify(record)}\n`));
}

describe('readableLog', () => {
  test('shows time, level and message, then the fields, then the error', () => {
    const line = readable({
      level: 'error',
      time: '2026-11-21T02:04:05.678Z',
      pid: 1,
      runId: 'r1',
      meta: { rows: '3' },
      err: {
        type: 'PermanentError',
        message: 'Cannot load: no object',
        code: 'OBJECT_MISSING',
        stack: 'at …',
      },
      msg: 'Run ended',
    });
    expect(line).toBe(
      '02:04:05 error Run ended  runId=r1  meta={"rows":"3"}  Cannot load: no object (OBJECT_MISSING)\n',
    );
  });

  test('lets no value steer the terminal or fill it', () => {
    const line = readable({
      level: 'warn',
      msg: 'Odd',
      name: 'a\u001B[2J\nb',
      long: 'x'.repeat(10_000),
    });
    expect(line).toContain('name=a·[2J·b');
    expect(line.length).toBeLessThan(300);
    expect(line.split('\n')).toHaveLength(2);
  });
});

test('elsewhere than on a terminal nothing but JSON lines is written by progress', () => {
  const written: string[] = [];
  const stream = {
    isTTY: false,
    write: (text: string): number => written.push(text),
  };
  const { log, progress } = openTerminal(stream, 'silent');
  using shown = progress;
  const view = shown.openView();
  view.show([{ label: 'parties', done: '1', unit: 'rows' }]);
  view.finish('complete');
  log.error('not shown');
  expect(written).toEqual([]);
});
