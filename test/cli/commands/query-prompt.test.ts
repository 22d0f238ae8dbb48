/**
 * The prompt of `query`: what ends a statement, what help shows, and questions with their
 * options.
 */
// cspell:ignore partyid
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { waitFor } from '../../support/wait-for.ts';
import { describe, expect, onTestFinished, test } from 'vitest';
import { query } from '../../../src/cli/commands/query.ts';
import {
  promptForSql,
  readTyped,
} from '../../../src/cli/commands/query-prompt.ts';
import type { CommandContext } from '../../../src/cli/context.ts';
import { UsageError } from '../../../src/errors/errors.ts';
import { readConfig } from '../../../src/config/environment.ts';

/** Types lines, and says what was asked, what was told, and what is remembered. */
async function converse(
  ...lines: string[]
): Promise<{ asked: string[]; told: string; history: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-prompt-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const history = join(folder, 'history');
  const stderr = new PassThrough();
  const stdin = Readable.from(lines.map((line) => `${line}\n`));
  const asked: string[] = [];
  const { signal } = new AbortController();
  await promptForSql(
    { history, help: 'what there is\n', stdin, stderr, signal },
    async (sql) => {
      asked.push(sql);
      if (sql === 'selekt') throw new Error('not SQL');
      if (sql === 'select partyid from parties')
        throw new UsageError([
          'SQL: there is no column partyid; did you mean party_id?\n\nLINE 1: …',
        ]);
      return (figure) => void asked.push(`${sql} drawn: ${figure}`);
    },
  );
  stderr.end();
  return {
    asked,
    told: await text(stderr),
    history: await readFile(history, 'utf8'),
  };
}

describe('the prompt', () => {
  test('takes statements of several lines, questions of one, and goes on after an error', async () => {
    const question = 'fees --since 2026-10-01 --asset 30522fbb…';
    const { asked, told, history } = await converse(
      'select 1',
      '  from parties;',
      'fees',
      'selekt;',
      question,
      'exit',
      'never',
    );
    expect(asked).toEqual([
      'select 1\n  from parties',
      'fees',
      'selekt',
      question,
    ]);
    expect(told).toContain('not SQL');
    expect(history.split('\n')[0]).toBe('select 1 from parties;');
  });

  test('shows all lines of what is wrong with SQL', async () => {
    const { told } = await converse('select partyid from parties;');
    expect(told).toContain('did you mean party_id?\n\nLINE 1: …\n');
  });

  test.each(['exit;', 'quit ;', 'QUIT', String.raw`\q`, '.exit', '.quit'])(
    '%s ends it, as in other prompts',
    async (end) => {
      const { asked } = await converse('fees', end, 'never');
      expect(asked).toEqual(['fees']);
    },
  );

  test.each([
    [String.raw`\d`, 'show tables'],
    [String.raw`\dt`, 'show tables'],
    [String.raw`\dt+;`, 'show tables'],
    ['.tables', 'show tables'],
    ['show tables', 'show tables'],
    [String.raw`\d parties`, 'describe parties'],
    [String.raw`\d mirror.parties;`, 'describe mirror.parties'],
    ['.schema parties', 'describe parties'],
    ['describe parties', 'describe parties'],
  ])('%s is understood as in psql and DuckDB', async (typed, sql) => {
    expect((await converse(typed)).asked).toEqual([sql]);
  });

  test('an unknown command is named, with those that there are', async () => {
    const { asked, told } = await converse(String.raw`\copy x`, 'fees');
    expect(told).toContain(
      String.raw`\copy: there is no such command; the commands are \d, \d TABLE, \chart, help and \q`,
    );
    expect(asked).toEqual(['fees']);
  });

  test('a chart draws the last result as it was shown, without running it again', async () => {
    const { asked } = await converse(
      'fees --month 2026-10',
      String.raw`\d fees`,
      String.raw`\chart`,
      'selekt;',
      '--chart paid',
    );
    expect(asked).toEqual([
      'fees --month 2026-10',
      'describe fees',
      'fees --month 2026-10 drawn: true',
      'selekt',
      'fees --month 2026-10 drawn: paid',
    ]);
  });

  test('a chart before any result says what to type first', async () => {
    const { asked, told } = await converse(String.raw`\chart`);
    expect(told).toContain(
      'There is no result to draw yet: type a ready question or SQL first',
    );
    expect(asked).toEqual([]);
  });

  test('a half-typed statement says how to leave, and \\q leaves', async () => {
    const { asked, told } = await converse(
      'select 1',
      'quit',
      String.raw`\q`,
      'never',
    );
    expect(told).toContain(
      String.raw`end it with ;, discard it with Ctrl-C, or type \q to end the prompt`,
    );
    expect(asked).toEqual([]);
  });

  test('Ctrl-C gives up a half-typed statement and goes on', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-prompt-'));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const stdin = new PassThrough();
    const stderr = Object.assign(new PassThrough(), { isTTY: true });
    const asked: string[] = [];
    const { signal } = new AbortController();
    const ended = promptForSql(
      { history: join(folder, 'history'), help: '', stdin, stderr, signal },
      async (sql) => {
        asked.push(sql);
        return () => undefined;
      },
    );
    let told = '';
    stderr.on('data', (chunk: Buffer) => {
      told += chunk.toString();
    });
    const type = async (keys: string, isTaken: () => boolean) => {
      told = '';
      stdin.write(keys);
      await waitFor(isTaken, { what: 'the prompt takes what was typed' });
    };
    const shows = (shown: string) => () => told.includes(shown);
    await type('select 1\n', shows('... '));
    await type('from', shows('from'));
    await type('\u0003', shows('ledger-mirror> '));
    await type(
      'fees\n',
      () => asked.length === 1 && shows('ledger-mirror> ')(),
    );
    stdin.write('\u0003');
    await ended;
    expect(asked).toEqual(['fees']);
  });

  test('shows help, which is no question', async () => {
    const { asked, told } = await converse('help');
    expect([asked, told]).toEqual([
      [],
      expect.stringContaining('what there is'),
    ]);
  });
});

describe('a typed question', () => {
  test.each([
    ['fees', { sql: 'fees' }],
    [
      'fees --since 2026-10-01 --party=3498…0033',
      { sql: 'fees', since: '2026-10-01', party: '3498…0033' },
    ],
    ['fees --month 2026-10', { sql: 'fees', month: '2026-10' }],
    [
      "fees --since -30d --until '2026-10-01 00:00'",
      { sql: 'fees', since: '-30d', until: '2026-10-01 00:00' },
    ],
    ['fees --chart', { sql: 'fees', chart: true }],
    [
      'fees --chart paid --month 2026-10',
      { sql: 'fees', chart: 'paid', month: '2026-10' },
    ],
    ['fees --chart=paid', { sql: 'fees', chart: 'paid' }],
    ['fees --chart --since -30d', { sql: 'fees', chart: true, since: '-30d' }],
    ['select 1 --comment', { sql: 'select 1 --comment' }],
  ])('%s is read with its options', (typed, read) => {
    expect(readTyped(typed)).toEqual(read);
  });

  test.each([
    'fees --year 2026',
    'fees --since',
    'fees --since 2026-10-01 or so',
  ])('%s is refused', (typed) => {
    expect(() => readTyped(typed)).toThrow(/is not valid; give --since/);
  });
});

/** What a command needs that is refused before it opens a mirror. */
function withoutMirror(): CommandContext {
  const config = readConfig({ env: { DATA_DIR: '/nonexistent' }, cwd: '/' });
  return {
    config,
    stdout: new PassThrough(),
    isJson: false,
  } as Partial<CommandContext> as CommandContext;
}

test('the name of a question that is nearly right is answered with the right one', async () => {
  const context = withoutMirror();
  const asked = query({ sql: 'top-party', list: false, timeout: 60 }, context);
  await expect(asked).rejects.toThrow(
    /the questions are .*fees.*; did you mean top-parties\?$/,
  );
});

test('an option that a question does not take is refused with those that it takes', async () => {
  const context = withoutMirror();
  const ask = (sql: string) =>
    query({ sql, list: false, timeout: 60, at: 'yesterday' }, context);
  await expect(ask('balances')).rejects.toThrow(
    'query balances: takes no --at; it takes --until, --party, --asset; for how it was at a time, give --until',
  );
  await expect(ask('cadence')).rejects.toThrow(
    'query cadence: takes no --at; it takes none',
  );
  await expect(ask('select 1')).rejects.toThrow(
    "--at: only with a ready question; write it into the SQL instead, such as where vega_time >= '2026-03-01'",
  );
});

test('a Parquet result is never written to a terminal', async () => {
  const config = readConfig({ env: { DATA_DIR: '/nonexistent' }, cwd: '/' });
  const ask = (format: 'parquet' | 'csv', isTTY: boolean): Promise<unknown> => {
    const stdout = Object.assign(new PassThrough(), { isTTY });
    const context = {
      config,
      stdout,
      isJson: false,
    } as Partial<CommandContext> as CommandContext;
    return query(
      { sql: 'select 1', list: false, timeout: 60, format },
      context,
    );
  };
  await expect(ask('parquet', true)).rejects.toThrow(/give --output FILE/);
  // Nothing else is wrong with them: they would ask a mirror.
  await expect(ask('parquet', false)).rejects.toThrow(/Cannot read the mirror/);
  await expect(ask('csv', true)).rejects.toThrow(/Cannot read the mirror/);
});
