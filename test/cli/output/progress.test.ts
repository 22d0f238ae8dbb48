import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import {
  createProgress,
  openTerminal,
} from '../../../src/cli/output/progress.ts';
import { RateMeter } from '../../../src/runs/progress.ts';
import { createLog } from '../../../src/logging/log.ts';
import { rememberSecrets } from '../../../src/secrets/secret-masking.ts';

/** What a terminal would show: understands just the sequences that a screen writes. */
class FakeTerminal {
  readonly isTTY = true;
  columns = 100;
  rows = 12;
  #lines: string[] = [''];
  #row = 0;

  write(text: string): boolean {
    for (const token of text.match(
      // oxlint-disable-next-line no-control-regex -- a terminal is driven by control characters
      /\u001B\[[?\d]*[a-zA-Z]|\r|\n|[^\u001B\r\n]+/g,
    ) ?? [])
      this.#apply(token);
    return true;
  }

  get shown(): string[] {
    return this.#lines.slice(0, this.#row);
  }

  #apply(token: string): void {
    const up =
      token.endsWith('A') && token.startsWith('\u001B[')
        ? token.slice(2, -1)
        : undefined;
    if (up !== undefined) this.#row -= Number(up);
    else if (token === '\u001B[0J') this.#lines.length = this.#row;
    else if (token === '\n') this.#row += 1;
    else if (!token.startsWith('\u001B') && token !== '\r')
      this.#lines[this.#row] = token;
    if (this.#row < 0) throw new Error('moved above the window');
  }
}

beforeEach(() =>
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] }),
);
afterEach(() => vi.useRealTimers());

describe('on a terminal', () => {
  test('draws a bar with count, rate and time left', () => {
    const terminal = new FakeTerminal();
    const opened = openTerminal(terminal, 'silent');
    using progress = opened.progress;
    const view = progress.openView();
    const parties = { label: 'parties', total: '10000', unit: 'rows' } as const;
    view.show([{ ...parties, done: '0' }]);
    vi.advanceTimersByTime(2_000);
    view.show([{ ...parties, done: '5000', note: 'page 5\u001B[2J' }]);
    vi.advanceTimersByTime(200);
    expect(terminal.shown).toEqual([
      expect.stringMatching(
        /^. parties {2}█{10}░{10} {2}50% {2}5,000 \/ 10,000 rows {2}2,500 rows\/s {2}2\.0 s left {2}page 5·\[2J$/,
      ),
    ]);
  });

  test('keeps moving while nothing happens', () => {
    const terminal = new FakeTerminal();
    const opened = openTerminal(terminal, 'silent');
    using progress = opened.progress;
    progress.openView().show([{ label: 'export', done: '0', unit: 'rows' }]);
    vi.advanceTimersByTime(3_000);
    const before = terminal.shown;
    vi.advanceTimersByTime(3_000);
    expect(terminal.shown).not.toEqual(before);
    expect(terminal.shown[0]).toMatch(/^. export {2}0 rows {2}[56]\.\d s$/);
  });

  test('leaves finished lines and logs above, and takes the others away', () => {
    const terminal = new FakeTerminal();
    rememberSecrets(['hunter22']);
    const { log, progress } = openTerminal(terminal, 'info');
    const view = progress.openView();
    const running = {
      label: 'checkpoints',
      done: '2048',
      unit: 'bytes',
    } as const;
    const part = {
      label: 'page 7',
      done: '1',
      unit: 'rows',
      isPart: true,
    } as const;
    view.show([{ label: 'parties', done: '3', unit: 'rows' }, running, part]);
    vi.advanceTimersByTime(500);
    log.info({ runId: 'r1', rows: 3n, seen: 'hunter22' }, 'Page committed');
    view.show([running]);
    view.show([]);
    vi.advanceTimersByTime(500);
    expect(terminal.shown).toEqual([
      expect.stringMatching(
        /^\d\d:\d\d:\d\d info {2}Page committed {2}runId=r1 {2}rows=3 {2}seen=\[secret\]$/,
      ),
      '✓ parties  in 500 ms',
      expect.stringContaining('checkpoints  2.0 KiB'),
    ]);
    progress[Symbol.dispose]();
    expect(terminal.shown).toHaveLength(2);
  });

  test('writes nothing once it was given back', () => {
    const terminal = new FakeTerminal();
    const { progress } = openTerminal(terminal, 'silent');
    const view = progress.openView();
    view.show([{ label: 'verify', done: '3', unit: 'files' }]);
    progress[Symbol.dispose]();
    view.finish('complete');
    expect(terminal.shown).toEqual([]);
  });

  test('tells a verdict at the end, and that it is not the good one', () => {
    const terminal = new FakeTerminal();
    const opened = openTerminal(terminal, 'silent');
    using progress = opened.progress;
    for (const verdict of ['failed', 'complete']) {
      const view = progress.openView();
      view.show([{ label: 'verify', done: '3', unit: 'files' }]);
      view.finish(verdict);
    }
    expect(terminal.shown).toEqual([
      expect.stringMatching(/^! verify {2}3 files so far, in .* {2}failed$/),
      expect.stringMatching(/^✓ verify {2}in \d+ ms$/),
    ]);
  });

  test('shows how much was done if a known total was reached, since other counts may be old', () => {
    const terminal = new FakeTerminal();
    const opened = openTerminal(terminal, 'silent');
    using progress = opened.progress;
    for (const done of ['2', '3']) {
      const view = progress.openView();
      view.show([{ label: 'load', done, total: '3', unit: 'segments' }]);
      view.finish('complete');
    }
    expect(terminal.shown).toEqual([
      expect.stringMatching(/^✓ load {2}in \d+ ms$/),
      expect.stringMatching(/^✓ load {2}3 segments in \d+ ms$/),
    ]);
  });

  test.each([
    [false, 1],
    [true, 0],
  ])(
    'draws without a log too, but not where it is to be quiet (%s)',
    (isQuiet, lines) => {
      const terminal = new FakeTerminal();
      const opened = openTerminal(terminal, 'silent', isQuiet);
      using progress = opened.progress;
      progress.openView().show([{ label: 'parties', done: '3', unit: 'rows' }]);
      vi.advanceTimersByTime(500);
      expect(terminal.shown).toHaveLength(lines);
    },
  );

  test('never draws more lines or columns than the window has', () => {
    const terminal = new FakeTerminal();
    terminal.rows = 6;
    terminal.columns = 30;
    const opened = openTerminal(terminal, 'silent');
    using progress = opened.progress;
    const line = {
      done: '1',
      total: '2',
      unit: 'rows',
      note: 'x'.repeat(99),
    } as const;
    progress.openView().show(
      Array.from({ length: 50 }, (_, index) => ({
        ...line,
        label: `party ${index}`,
      })),
    );
    vi.advanceTimersByTime(500);
    expect(terminal.shown).toHaveLength(4);
    expect(terminal.shown.at(-1)).toBe('… and 47 more');
    expect(
      Math.max(...terminal.shown.map((shown) => shown.length)),
    ).toBeLessThan(30);
  });
});

describe('elsewhere', () => {
  test('logs at the start, every ten seconds and at the end', () => {
    const lines: Record<string, unknown>[] = [];
    const destination = {
      write: (line: string): number =>
        lines.push(JSON.parse(line) as Record<string, unknown>),
    };
    const log = createLog('info', destination);
    using progress = createProgress(log);
    const view = progress.openView();
    for (let second = 0; second < 25; second += 1) {
      view.show([
        { label: 'parties', done: String(second * 100), unit: 'rows' },
      ]);
      vi.advanceTimersByTime(1_000);
    }
    view.finish('complete');
    view.show([{ label: 'parties', done: '0', unit: 'rows' }]);
    vi.advanceTimersByTime(60_000);
    expect(lines.map((line) => line['msg'])).toEqual([
      'Started',
      'Progress',
      'Progress',
      'Finished',
    ]);
    expect(lines[1]).toMatchObject({
      task: 'parties',
      done: '900',
      unit: 'rows',
      perSecond: 100,
    });
    expect(lines[3]).toMatchObject({ done: '2400', elapsedMs: 25_000 });
  });
});

describe('RateMeter', () => {
  test('follows the last seconds, not the whole past', () => {
    const meter = new RateMeter();
    for (let atMs = 0; atMs <= 60_000; atMs += 100)
      meter.add(BigInt(atMs), atMs);
    expect(meter.perSecond).toBeCloseTo(1_000);
    for (let atMs = 60_100; atMs <= 75_000; atMs += 100)
      meter.add(60_000n, atMs);
    expect(meter.perSecond).toBe(0);
  });

  test('begins again where the count falls, and says nothing from one sample', () => {
    const meter = new RateMeter();
    expect(meter.perSecond).toBe(0);
    meter.add(1_000n, 0);
    expect(meter.perSecond).toBe(0);
    meter.add(10n, 1_000);
    meter.add(20n, 2_000);
    expect(meter.perSecond).toBe(10);
  });
});
