/**
 * The runs of commands through the real binary: cancel, waiting, signals, and the
 * document of a run.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { countRows, unfinishedRuns } from '../../support/mirror-state.ts';
import { waitFor } from '../../support/wait-for.ts';
import { commandWorld } from './command-world.ts';
import type { Ended } from '../mirror-home.ts';

const { database, home, party, sandbox } = await commandWorld();
const NEVER = new Promise<never>(() => undefined);

describe('the command cancel', () => {
  test('ends a run at work, and one that nobody works at once', async () => {
    let isAsked = false;
    sandbox.faults.add(({ route }) => {
      if (route !== 'parties') return undefined;
      isAsked = true;
      return { until: NEVER };
    });
    const waiting = home.start(['sync', 'parties', '--json']);
    await waitFor(() => isAsked, { what: 'the command at work' });
    const [running] = await unfinishedRuns(database.pool, 'sync');
    const cancelled = await home.json(['cancel', running?.runId ?? '']);
    sandbox.faults.clear();
    expect([cancelled.code, cancelled.document['state']]).toEqual([
      0,
      'cancelled',
    ]);
    expect((await waiting.end()).code).toBe(2);
    const again = await home.run(['cancel', running?.runId ?? '']);
    expect([again.code, again.stdout]).toEqual([
      0,
      expect.stringMatching(/had ended already/),
    ]);
  });

  test('lets a second nightly wait, which says for what and leaves nothing queued when it is stopped', async () => {
    let isAsked = false;
    sandbox.faults.add(({ route }) => {
      if (route !== 'parties') return undefined;
      isAsked = true;
      return { until: NEVER };
    });
    const first = home.start(['nightly', '--json']);
    await waitFor(() => isAsked, { what: 'the first nightly run at work' });
    const second = home.start(['nightly', '--json']);
    await waitFor(
      () => second.stderr.includes('Waiting for another nightly run'),
      {
        what: 'the second to say so',
      },
    );
    expect(await second.end('SIGTERM')).toEqual({ code: 75, signal: null });
    const open = await unfinishedRuns(database.pool, 'nightly');
    expect(open).toHaveLength(1);
    expect((await home.run(['cancel', open[0]?.runId ?? ''])).code).toBe(0);
    sandbox.faults.clear();
    expect((await first.end()).code).toBe(2);
    expect(await unfinishedRuns(database.pool)).toEqual([]);
  });
});

describe('the command runs', () => {
  test('lists the runs that started in the time of --since and --until', async () => {
    const all = await home.json(['runs']);
    const since = await home.json(['runs', '--since', '-1d']);
    expect(since.document).toEqual(all.document);
    const none = await home.run(['runs', '--until', '2020']);
    expect([none.code, none.stdout]).toEqual([
      0,
      'No run started in this time.\n',
    ]);
    const wrong = await home.run(['runs', '--since', 'last week']);
    expect([wrong.code, wrong.stderr]).toEqual([
      1,
      expect.stringContaining('--since: "last week" is not a time that can be'),
    ]);
    const both = await home.run(['runs', 'abc', '--since', 'yesterday']);
    expect([both.code, both.stderr]).toEqual([
      1,
      expect.stringContaining('runs: --since and --until choose from the list'),
    ]);
  });
});

describe('the command nightly', () => {
  test('tells its run when it starts, and that a worker works it with settings of its own', async () => {
    const alone = await home.run(['nightly']);
    expect(alone.stderr).toMatch(/"Nightly run started"/);
    expect(alone.stderr).toMatch(
      /"runId":"[0-9a-f-]{36}".*"Nightly run started"/,
    );
    const worker = home.start(['worker']);
    await waitFor(
      async () => (await countRows(database.pool, 'workers')) === 1,
      {
        what: 'the worker',
      },
    );
    const attended = await home.run(['nightly'], { SOURCE_RATE: '2' });
    expect(attended.stderr).toMatch(
      /Nightly run started; a worker in another process is doing it, with its own settings/,
    );
    expect(await worker.end('SIGTERM')).toEqual({ code: 0, signal: null });
  });
});

describe('the end of a command', () => {
  test('has exit code 75 for a waiting command on SIGTERM, and the next command follows the same run', async () => {
    let isAsked = false;
    sandbox.faults.add(({ route }) => {
      if (route !== 'checkpoints') return undefined;
      isAsked = true;
      return { until: NEVER };
    });
    const waiting = home.start(['sync', 'checkpoints', '--json']);
    await waitFor(() => isAsked, { what: 'the command at work' });
    expect(await waiting.end('SIGTERM')).toEqual({ code: 75, signal: null });
    expect(JSON.parse(waiting.stdout)).toEqual({
      error: { code: 'STOPPED', message: expect.any(String) as string },
    });
    expect(waiting.stderr).toMatch(/stopped; what was saved stays/);
    sandbox.faults.clear();
    const next = await home.json(['sync', 'checkpoints']);
    expect([next.code, next.document.verdict]).toEqual([0, 'complete']);
    expect(await unfinishedRuns(database.pool)).toEqual([]);
  });

  test('comes to the sandbox on SIGTERM, which serves its release until then', async () => {
    const served = home.start([
      'sandbox',
      '--port',
      '0',
      '--parties',
      '3',
      '--release',
      '0.73',
      '--json',
    ]);
    const [line] = await served.waitForLine(/\{.*\}\n/);
    const { url, release } = JSON.parse(line) as {
      url: string;
      release: string;
    };
    expect([(await fetch(`${url}/api/v2/parties`)).status, release]).toEqual([
      200,
      '0.73',
    ]);
    const told = home.start(['sandbox', '--port', '0', '--parties', '3']);
    await told.waitForLine(/Ctrl-C/);
    expect(told.stdout).toMatch(
      /^Try, in the folder .*: SOURCE_URL=http\S+ DATA_DIR='data' npx ledger-mirror nightly$/m,
    );
    await told.end('SIGTERM');
    const ledger = await fetch(
      `${url}/api/v2/ledgerentry/export?partyId=${'ab'.repeat(32)}`,
    );
    expect(await ledger.text()).toMatch(/^vega_time,quantity,effect,/);
    expect(await served.end('SIGTERM')).toEqual({ code: 0, signal: null });
  });
});

/** Whether integers stand as text or as numbers, by the name that they stand under. */
function noteForms(
  value: unknown,
  forms: Map<string, Set<string>>,
  name = '',
): void {
  if (Array.isArray(value))
    for (const inner of value) noteForms(inner, forms, name);
  else if (typeof value === 'object' && value !== null)
    for (const [key, inner] of Object.entries(value))
      noteForms(inner, forms, key);
  else if (
    Number.isInteger(value) ||
    (typeof value === 'string' && /^-?\d+$/.test(value))
  )
    forms.set(name, (forms.get(name) ?? new Set()).add(typeof value));
}

describe('the document of a run', () => {
  const text = readFileSync(
    new URL('../../../docs/run.schema.json', import.meta.url),
    'utf8',
  );
  const schema = z.fromJSONSchema(JSON.parse(text));

  test('is described by the schema that ships, whatever the exit code', async () => {
    const checked: unknown[] = [];
    const forms = new Map<string, Set<string>>();
    const check = ({ code, stdout }: Pick<Ended, 'code' | 'stdout'>): void => {
      const document = JSON.parse(stdout) as Record<string, unknown>;
      expect(schema.safeParse(document).error).toBeUndefined();
      noteForms(document, forms);
      checked.push([
        code,
        document['status'] ?? null,
        document['retryable'] ?? null,
      ]);
    };
    check(await home.json(['sync', 'all']));
    check(await home.json(['nightly']));
    check(await home.json(['verify']));
    check(await home.run(['export', '--party', 'nobody', '--json']));
    const broken = sandbox.faults.add(({ route }) =>
      route === 'export' ? { answer: { status: 403, body: 'no' } } : undefined,
    );
    check(await home.json(['export', '--party', party, '--again']));
    broken();
    let isAsked = false;
    const held = sandbox.faults.add(({ route }) => {
      isAsked ||= route === 'export';
      return route === 'export' ? { stallAfterBytes: 100 } : undefined;
    });
    const child = home.start(['export', '--party', party, '--again', '--json']);
    await waitFor(() => isAsked, { what: 'the export to be asked for' });
    const { code } = await child.end('SIGINT');
    check({ code, stdout: child.stdout });
    held();
    expect(checked).toEqual([
      [0, null, null],
      [0, 'succeeded', false],
      [0, 'succeeded', false],
      [1, null, null],
      [2, 'failed', expect.any(Boolean)],
      [75, null, null],
    ]);
    // A name that is a number here and text there cannot be read by one program.
    expect(
      [...forms].filter(([, found]) => found.size > 1).map(([name]) => name),
    ).toEqual([]);
  });

  test('says rows as decimal text, and up to when it is complete', async () => {
    const { document } = await home.json(['nightly']);
    expect(document['rows']).toMatch(/^\d+$/);
    expect(Date.parse(String(document['asOf']))).toBeGreaterThan(0);
    const counts = JSON.stringify(document['evidence']).match(
      /"\w*(?:rows|Rows|bytes|Bytes)":[^,}]*/g,
    );
    expect(
      counts?.filter(
        (count) => !count.includes(':"') && !count.endsWith('null'),
      ),
    ).toEqual([]);
  });
});
