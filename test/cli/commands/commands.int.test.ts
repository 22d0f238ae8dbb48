/**
 * Every command through the real binary over one small mirror: output, documents, files
 * and exit codes.
 */
import { existsSync } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  listedParties,
  loadedRowsByParty,
  unfinishedRuns,
} from '../../support/mirror-state.ts';
import { waitFor } from '../../support/wait-for.ts';
import { commandWorld } from './command-world.ts';
import { csvSum } from '../expect-truth.ts';
import type { Ended } from '../mirror-home.ts';

const { database, home, party, sandbox } = await commandWorld();
const FIRST_MONTH =
  "select strftime(min(vega_time), '%Y-%m') as month from ledger_entries";
const UUID = /^[0-9a-f-]{36}$/;

/**
 * What a user who did something wrong sees: lines of ours, no stack trace, nothing on
 * stdout.
 */
function expectRefused(ended: Ended, ...lines: readonly RegExp[]): void {
  const said = ended.stderr.trimEnd().split('\n');
  expect(ended).toMatchObject({ code: 1, stdout: '' });
  expect(said).toHaveLength(lines.length);
  for (const [index, line] of lines.entries())
    expect(said[index]).toMatch(line);
}

describe('the command export', () => {
  test('writes exactly the CSV of the source and nothing else with --out -', async () => {
    const { code, stdout } = await home.run([
      'export',
      '--party',
      party,
      '--out',
      '-',
    ]);
    expect(code).toBe(0);
    const { entries, digest } = sandbox.truth.party(party);
    expect(csvSum(stdout)).toEqual({ entries, digest });
  });

  test('is not complete for a mistyped party, which the source answers without entries', async () => {
    const mistyped = `${party.slice(0, -1)}${party.endsWith('0') ? '1' : '0'}`;
    for (let time = 1; time <= 2; time += 1) {
      const { code, document } = await home.json([
        'export',
        '--party',
        mistyped,
      ]);
      expect([code, document.verdict]).toEqual([2, 'incomplete']);
      expect(document.evidence).toMatchObject({
        code: 'PARTY_NOT_LISTED',
        reason: expect.stringContaining('the source does not list this party'),
      });
    }
  });

  test('bounds the rows by --from, --to and --asset, and its file appears only when it is complete', async () => {
    const head = sandbox.truth.head().time;
    const from = head - (head % 1_000_000n) - 3n * 86_400_000_000n;
    const to = from + 86_400_000_000n;
    const assetId = sandbox.truth.assetIds()[0] ?? '';
    const time = (at: bigint): string =>
      new Date(Number(at / 1000n)).toISOString();
    const range = ['--from', time(from), '--to', time(to)];
    const { code, document } = await home.json([
      'export',
      '--party',
      party,
      ...range,
      '--out',
      'day.csv',
    ]);
    expect([code, document.verdict]).toEqual([0, 'complete']);
    const day = sandbox.truth.party(party, { from, to });
    expect(
      csvSum(await readFile(join(home.dir, 'day.csv'), 'utf8')),
    ).toMatchObject({
      digest: day.digest,
    });
    const asset = await home.run([
      'export',
      '--party',
      party,
      '--asset',
      assetId,
      ...range,
      '--out',
      '-',
    ]);
    expect(asset.code).toBe(0);
    const inAsset = sandbox.truth.party(party, { from, to, assetId });
    expect(csvSum(asset.stdout)).toEqual({
      entries: inAsset.entries,
      digest: inAsset.digest,
    });
  });

  test('needs no source for a covered range, and refuses another without one', async () => {
    const head = sandbox.truth.head().time;
    const from = head - (head % 1_000_000n) - 3n * 86_400_000_000n;
    const to = from + 86_400_000_000n;
    const time = (at: bigint): string =>
      new Date(Number(at / 1000n)).toISOString();
    const command = [
      'export',
      '--party',
      party,
      '--from',
      time(from),
      '--out',
      'covered.csv',
    ];
    const none = { SOURCE_URL: undefined };
    const { code, stdout, stderr } = await home.run(
      [...command, '--to', time(to)],
      none,
    );
    expect([code, stderr]).toEqual([
      0,
      expect.not.stringContaining('SOURCE_URL'),
    ]);
    const day = sandbox.truth.party(party, { from, to });
    expect(
      csvSum(await readFile(join(home.dir, 'covered.csv'), 'utf8')),
    ).toMatchObject({
      digest: day.digest,
    });
    expect(stdout).toMatch(
      new RegExp(
        `^Covered already; .*\n${day.entries} rows? written to covered.csv\n$`,
      ),
    );
    const tomorrow = head + 2n * 86_400_000_000n;
    const outside = await home.run([...command, '--to', time(tomorrow)], none);
    expectRefused(
      outside,
      /SOURCE_URL: not set, and not all of the range is covered \(.*nothing is known from /,
    );
    expectRefused(
      await home.run(command, none),
      /SOURCE_URL: not set, and an export without --to reaches/,
    );
    const month = (given: string) => [
      'export',
      '--party',
      party,
      '--month',
      given,
    ];
    const thisMonth = new Date().toISOString().slice(0, 7);
    expectRefused(
      await home.run([...month(thisMonth), '--out', 'm.csv'], none),
      new RegExp(
        `SOURCE_URL: not set, and the month ${thisMonth} is not over, .*; give the URL of the query service, or give --from and --to instead of --month`,
      ),
    );
    expectRefused(
      await home.run(month('2023-03'), none),
      /SOURCE_URL: not set, and an export without --out asks the source; give the URL of the query service, or give --out FILE, which writes what/,
    );
    expectRefused(
      await home.run([...command, '--to', time(to), '--again'], none),
      /SOURCE_URL: not set, and --again asks the source/,
    );
  });

  test('tells with --out how many rows it wrote', async () => {
    const { stdout } = await home.run([
      'export',
      '--party',
      party,
      '--out',
      'told.csv',
    ]);
    const { entries } = sandbox.truth.party(party);
    expect(stdout).toMatch(
      new RegExp(`^${entries} rows written to told.csv$`, 'm'),
    );
  });

  test('loads what it publishes; --no-load leaves that to the next load', async () => {
    const loadedRows = async (): Promise<number> =>
      (await loadedRowsByParty(database.pool)).get(party) ?? 0;
    const before = await loadedRows();
    sandbox.advance(12 * 3_600_000);
    const { entries } = sandbox.truth.party(party);
    expect(entries).toBeGreaterThan(before);
    const left = await home.json(['export', '--party', party, '--no-load']);
    expect([left.code, left.document['load'], await loadedRows()]).toEqual([
      0,
      undefined,
      before,
    ]);
    expect([(await home.run(['load'])).code, await loadedRows()]).toEqual([
      0,
      entries,
    ]);
    sandbox.advance(12 * 3_600_000);
    const loaded = await home.json(['export', '--party', party]);
    expect([loaded.code, loaded.document['load']]).toMatchObject([
      0,
      { verdict: 'complete' },
    ]);
    expect(await loadedRows()).toBe(sandbox.truth.party(party).entries);
  });

  test('ends its request at the source on Ctrl-C', async () => {
    let isStalled = false;
    const restore = sandbox.faults.add(({ route }) => {
      isStalled ||= route === 'export';
      return route === 'export' ? { stallAfterBytes: 100 } : undefined;
    });
    const ended = sandbox.requests.of('export');
    const child = home.start(['export', '--party', party]);
    await waitFor(() => isStalled, { what: 'the source to stall' });
    expect(await child.end('SIGINT')).toEqual({ code: 75, signal: null });
    expect(child.stderr).toMatch(/stopped; what was saved stays/);
    await waitFor(() => sandbox.requests.of('export') > ended, {
      what: 'the connection to be closed',
    });
    restore();
    expect(await unfinishedRuns(database.pool)).toEqual([]);
  });

  test('accepts a reader that stops early, and reports a path that cannot be written before it asks', async () => {
    const child = home.start(['export', '--party', party, '--out', '-']);
    child.closeStdout();
    expect(await child.end()).toEqual({ code: 0, signal: null });
    const before = sandbox.requests.of();
    expectRefused(
      await home.run(['export', '--party', party, '--out', 'nowhere/x.csv']),
      /--out: cannot write nowhere\/x\.csv \(ENOENT\); name a file in a folder that exists/,
    );
    expectRefused(
      await home.run(['export', '--party', party, '--out', '.']),
      /--out: \. is a directory/,
    );
    expect(sandbox.requests.of()).toBe(before);
    // A device is written to, never replaced.
    const device = await home.run([
      'export',
      '--party',
      party,
      '--out',
      '/dev/full',
    ]);
    expect([device.code, device.stderr]).toEqual([
      1,
      expect.stringMatching(/ENOSPC/),
    ]);
    expect((await stat('/dev/full')).isCharacterDevice()).toBe(true);
  });

  test('reports all wrong arguments at once, before it asks the source', async () => {
    const before = sandbox.requests.of();
    const wrong = [
      '--party',
      'two\nlines',
      '--asset',
      'x',
      '--from',
      '20.11.2026',
      '--out',
      '-',
      '--json',
    ];
    const refused = await home.run(['export', ...wrong]);
    // `--json` promises a document, for a failure too.
    const document = JSON.parse(refused.stdout) as {
      error: { code: string; message: string };
    };
    expect(document.error).toMatchObject({
      code: 'USAGE',
      message: expect.stringMatching(/^--party: /) as string,
    });
    expectRefused(
      { ...refused, stdout: '' },
      /--party: "two\\nlines" cannot be exported; give a party id as the source lists it/,
      /--asset: "x" is not an asset id/,
      /--from: "20\.11\.2026" is not a time that can be read; use .*2026-03.*-30d/,
      /--out -: cannot go with --json/,
    );
    expectRefused(
      await home.run(['export', '--party', '../etc']),
      /--party: there is no listed party "\.\.\/etc"; give an id as the source lists it/,
    );
    expectRefused(
      await home.run(['export', '--party', 'network']),
      /--party: "network" cannot be exported/,
    );
    expect(sandbox.requests.of()).toBe(before);
  });
});

describe('a time as people type it', () => {
  test('export --month asks for that month, and nothing of another', async () => {
    const first = await home.run(['query', FIRST_MONTH, '--format', 'csv']);
    const month = first.stdout.split('\n')[1] ?? '';
    expect(month).toMatch(/^\d{4}-\d\d$/);
    const plain = await home.run([
      'query',
      `select count(*) from ledger_entries where party_id = '${party}' and ` +
        `strftime(vega_time, '%Y-%m') = '${month}'`,
      '--format',
      'csv',
    ]);
    const count = plain.stdout.split('\n')[1];
    const asked = ['export', '--party', party, '--month', month];
    const { document } = await home.json([...asked, '--out', 'month.csv']);
    expect(document['written']).toMatchObject({ rows: count });
    // The source lives in the middle of that month, which the command says.
    expect(document['missing']).toEqual([
      expect.stringMatching(new RegExp(`^from ${month}-.* on$`)),
    ]);
  });

  test('query --chart draws a bar for each month, and goes with no format', async () => {
    const none = await home.run(['query', FIRST_MONTH, '--chart']);
    expect(none.stdout).toContain('No chart: no column of the result contains');
    const asked = `select month, count(*) as entries from ledger_entries group by 1 order by 1`;
    const { code, stdout } = await home.run(['query', asked, '--chart']);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^entries\n(?:\d{4}-\d\d +[\d,]+ +█*\n)+$/),
    ]);
    expectRefused(
      await home.run(['query', asked, '--chart', '--format', 'csv']),
      /--chart: cannot go with --format or --json/,
    );
  });

  test('a ready question takes the same month, and a part of the past', async () => {
    const rows = async (...given: string[]) => {
      const ended = await home.run(['query', 'fees', ...given, '--format=csv']);
      expect(ended).toMatchObject({ code: 0 });
      return ended.stdout;
    };
    expect(await rows('--since', '-9000d')).toBe(await rows());
    expect(await rows('--since', 'today', '--until', 'now')).toBe(
      await rows('--since', '2099-01'),
    );
    const [header = '', firstRow = ''] = (await rows()).split('\n');
    expect(header).toMatch(/^month,/);
    const month = firstRow.slice(0, 7);
    const ofMonth = (await rows())
      .split('\n')
      .filter((row) => row.startsWith(month));
    expect(await rows('--month', month)).toBe(
      [header, ...ofMonth, ''].join('\n'),
    );
    expectRefused(
      await home.run(['query', 'fees', '--month', 'March']),
      /--month: "March" is not a month; give a month such as 2026-03/,
    );
  });
});

describe('status --watch', () => {
  test('shows the status until it is told to stop, which is no failure', async () => {
    const watching = home.start(['status', '--watch']);
    await waitFor(() => watching.stdout.includes('Ledgers: '), {
      what: 'the status is shown',
    });
    expect(await watching.end('SIGTERM')).toMatchObject({ code: 0 });
  });

  test('is refused beside --json and --check, which look once', async () => {
    for (const [other, why] of [
      ['--json', 'which is one document'],
      ['--check', 'which looks once'],
    ] as const) {
      const refused = await home.run(['status', '--watch', other]);
      expect(refused.code).toBe(1);
      expect(refused.stderr).toContain(`--watch: not with ${other}, ${why}`);
    }
  });
});

describe('an id that was cut off', () => {
  test('finds its party for export and lookup, and its report', async () => {
    const cut = `${party.slice(0, 8)}…`;
    const { code, document } = await home.json(['export', '--party', cut]);
    expect([code, document['subject']]).toEqual([0, party]);
    const between = await home.run([
      'export',
      '--party',
      `${party.slice(0, 8)}…${party.slice(-4)}`,
      '--out',
      '-',
    ]);
    expect(csvSum(between.stdout).digest).toBe(
      sandbox.truth.party(party).digest,
    );
    const looked = await home.run([
      'sync',
      'parties',
      '--party',
      party.slice(0, 8),
    ]);
    expect([looked.code, looked.stdout]).toEqual([
      0,
      `${party}: listed by the source, and now in the mirror\n`,
    ]);
    const { document: listed } = await home.json(['runs', '--limit', '50']);
    const night = (listed as unknown as { runId: string; kind: string }[]).find(
      ({ kind }) => kind === 'nightly',
    );
    expect(
      (await home.run(['verify', '--against', night?.runId.slice(0, 23) ?? '']))
        .code,
    ).toBe(0);
  });

  test('is refused with the matching parties where it fits several, before the source is asked', async () => {
    const ids = (await listedParties(database.pool)).toSorted();
    const [several = []] = Map.groupBy(ids, ([first]) => first)
      .values()
      .filter((group) => group.length > 1);
    const cut = `${several[0]?.[0]}…`;
    const before = sandbox.requests.of();
    for (const command of [['export'], ['sync', 'parties']]) {
      const refused = await home.run([...command, '--party', cut]);
      expectRefused(
        refused,
        /--party: more than one listed party begins with ".…": /,
      );
      for (const id of several.slice(0, 3))
        expect(refused.stderr).toContain(id);
    }
    expectRefused(
      await home.run(['export', '--party', 'network…']),
      /there is no listed party "network…"/,
    );
    expect(sandbox.requests.of()).toBe(before);
  });
});

describe('commands that read the mirror', () => {
  test('sync --party looks up one party', async () => {
    const known = await home.json(['sync', 'parties', '--party', party]);
    expect([known.code, known.document.evidence]).toMatchObject([
      0,
      { listed: true },
    ]);
    const unknown = await home.run([
      'sync',
      'parties',
      '--party',
      'ab'.repeat(32),
    ]);
    expect(unknown.stdout).toMatch(/not listed by the source/);
    expectRefused(
      await home.run(['sync', 'ledgers']),
      /'ledgers' is invalid.*Allowed choices are parties, checkpoints, all/,
    );
  });

  test('runs lists what ran, and shows one with its evidence', async () => {
    const { code, document } = await home.json(['runs', '--limit', '50']);
    expect(code).toBe(0);
    const listed = document as unknown as {
      runId: string;
      kind: string;
      verdict: string;
    }[];
    const night = listed.find(({ kind }) => kind === 'nightly');
    expect(night).toMatchObject({
      runId: expect.stringMatching(UUID) as string,
      verdict: 'complete',
    });
    const one = await home.json(['runs', night?.runId ?? '']);
    expect(one.document).toMatchObject({
      kind: 'nightly',
      evidence: { exports: { verdict: 'complete' } },
    });
    const report = (await home.run(['runs', night?.runId ?? ''])).stdout;
    expect(report).toContain('\nWhat happened\n');
    expect(report).toMatch(/^ {2}verify .*: every sum agrees$/m);
    expect(report).not.toMatch(/[{}[\]]/);
    const table = (await home.run(['runs', '--limit', '50'])).stdout;
    const parts = table
      .split('\n')
      .filter((row) => row.includes(` ${night?.runId.slice(0, 13)}… `));
    expect(new Set(parts.map((row) => row.split(/ +/)[1]))).toEqual(
      new Set(['load', 'sync']),
    );
    const short = await home.run(['runs', `${night?.runId.slice(0, 23)}…`]);
    expect(short.stdout).toContain(night?.runId);
    expectRefused(
      await home.run(['runs', night?.runId.slice(0, 4) ?? '']),
      /more than one run begins with .*: [0-9a-f-]{36}, /,
    );
    expectRefused(await home.run(['runs', 'last']), /there is no run "last"/);
    const unknown = '01a1fc01-6f2e-749d-96ef-db77d717e20d';
    expectRefused(
      await home.run(['runs', unknown]),
      /there is no run "01a1fc01/,
    );
  });

  test('logs tells what a nightly run did, stage by stage', async () => {
    const listed = (await home.json(['runs', '--limit', '50']))
      .document as unknown as {
      runId: string;
      kind: string;
    }[];
    const { stdout } = await home.run([
      'logs',
      listed.find(({ kind }) => kind === 'nightly')?.runId ?? '',
    ]);
    const told = stdout
      .split('\n')
      .map((line) => line.slice(15).replace(/ {2}.*(kind=\w+).*/, ' $1'));
    expect(
      told.filter((line) => /kind=|Exports ended|Verified/.test(line)),
    ).toEqual([
      'Run finished kind=sync',
      'Run finished kind=sync',
      expect.stringContaining('Exports ended') as string,
      'Run finished kind=load',
      expect.stringContaining('Verified') as string,
      'Run finished kind=nightly',
    ]);
  });

  test.each([
    ['status'],
    ['runs'],
    ['logs', '01a1fc01'],
    ['cancel', '01a1fc01'],
    ['verify'],
    ['lake'],
    ['query', 'top-parties'],
  ])('%s makes no mirror where there is none', async (...args) => {
    const DATA_DIR = join(home.dir, 'nothing');
    const none = { DATA_DIR, DATABASE_URL: '', OBJECT_STORE_URL: '' };
    expectRefused(
      await home.run(args, none),
      /Cannot read the mirror: there is none in .*nothing, and no \.env in this folder sets anything; go to/,
    );
    expect(existsSync(DATA_DIR)).toBe(false);
  });

  test('status, doctor and migrate say how things stand', async () => {
    const status = await home.json(['status']);
    expect(status.code).toBe(0);
    expect(status.document['attention']).toEqual([]);
    expect((await home.run(['status', '--check'])).code).toBe(0);
    const doctor = await home.json(['doctor']);
    expect(doctor.code).toBe(0);
    const findings = doctor.document['findings'] as {
      what: string;
      state: string;
    }[];
    expect(findings.filter(({ state }) => state === 'wrong')).toEqual([]);
    expect(findings.map(({ what }) => what)).toEqual(
      expect.arrayContaining(['database', 'queues', 'object store', 'source']),
    );
    expect((await home.json(['migrate'])).document).toEqual({ migrated: [] });
  });

  test('query answers as a table, as CSV and as JSON, and only reads', async () => {
    const sql = `select count(*) as entries from ledger_entries where party_id = '${party}'`;
    const entries = String(sandbox.truth.party(party).entries);
    expect((await home.run(['query', sql])).stdout).toContain(entries);
    expect((await home.run(['query', sql, '--format', 'csv'])).stdout).toBe(
      `entries\n${entries}\n`,
    );
    expect((await home.json(['query', sql])).document['rows']).toEqual([
      { entries: Number(entries) },
    ]);
    expect((await home.json(['query', 'top-parties'])).code).toBe(0);
    for (const wrong of [
      'delete from ledger_entries',
      'selekt 1',
      "copy (select 1) to '/tmp/x.csv'",
    ]) {
      const refused = await home.run(['query', wrong]);
      expect(refused).toMatchObject({ code: 1, stdout: '' });
      // The parser points at the place, in lines of its own.
      expect(refused.stderr).toMatch(/^ledger-mirror: SQL: /);
      expect(refused.stderr).not.toMatch(/\n\s+at /);
    }
  });

  test('query --output says what it wrote; an ending that tells no format is refused', async () => {
    const written = await home.run([
      'query',
      'select 1 as one',
      '--output',
      'one.csv',
      '--quiet',
    ]);
    expect(written).toEqual({
      code: 0,
      stdout: '',
      stderr: '1 row written to one.csv\n',
    });
    expectRefused(
      await home.run(['query', 'select 1', '--output', 'one.xls']),
      /--output: "\.xls" names no format; use a name that ends in \.csv, \.json, \.ndjson, or \.parquet, or give --format/,
    );
  });

  test('query --json --output writes the file by its ending, and says so in its document', async () => {
    const { code, document } = await home.json([
      'query',
      'select 1 as one',
      '--output',
      'told.csv',
    ]);
    expect([code, document]).toEqual([
      0,
      { written: { rows: '1', file: 'told.csv' } },
    ]);
    expect(await readFile(join(home.dir, 'told.csv'), 'utf8')).toBe('one\n1\n');
  });

  test('query --output writes to a device, and never replaces it', async () => {
    const device = await home.run([
      'query',
      'select 1 as one',
      '--output',
      '/dev/full',
      '--format',
      'csv',
    ]);
    expect([device.code, device.stderr]).toEqual([
      1,
      expect.stringMatching(/^ledger-mirror: .*ENOSPC/),
    ]);
  });

  test('query --output into a folder that is not there is refused', async () => {
    const refused = await home.run([
      'query',
      'select 1',
      '--output',
      'no-folder/x.csv',
    ]);
    expect(refused.code).toBe(1);
    expectRefused(
      refused,
      /--output: cannot write .*x\.csv \(ENOENT\); name a file in a folder that exists/,
    );
  });

  test('nightly --dry-run asks the source for nothing', async () => {
    const before = sandbox.requests.of();
    const { code, document } = await home.json(['nightly', '--dry-run']);
    expect([code, document['dryRun']]).toEqual([0, true]);
    expect(document['exports']).toMatchObject({ due: 12 });
    expect(sandbox.requests.of()).toBe(before);
  });

  test('--version and --help answer without a mirror', async () => {
    const { version } = JSON.parse(
      await readFile(
        join(import.meta.dirname, '../../../package.json'),
        'utf8',
      ),
    ) as { version: string };
    expect(await home.run(['--version'])).toMatchObject({
      code: 0,
      stdout: `${version}\n`,
    });
    const help = await home.run(['--help']);
    expect(help.code).toBe(0);
    for (const word of ['nightly', 'verify', 'SOURCE_URL', 'Exit codes'])
      expect(help.stdout).toContain(word);
  });
});

describe('wrong usage', () => {
  test.each([
    [['frobnicate'], {}, /unknown command/],
    [['export'], {}, /required option '--party <id>'/],
    [
      ['sandbox', '--release', '0.70'],
      {},
      /Allowed choices are 0.71.4, 0.71.6, 0.73/,
    ],
    [['sync', 'all', '--fool'], {}, /unknown option '--fool'/],
    [
      ['sync', 'party'],
      {},
      /the value 'party' is invalid for argument 'what'. Allowed choices are parties,/,
    ],
    [['nightly'], { SOURCE_URL: undefined }, /SOURCE_URL: not set/],
    [
      ['status'],
      { SOURCE_RATE: 'fast' },
      /SOURCE_RATE: "fast" is not accepted; give a whole number/,
    ],
    [
      ['status'],
      { EXPORT_COMPRESSON: 'zstd' },
      /EXPORT_COMPRESSON: not a setting/,
    ],
  ])('%s %o ends in 1 with a clear line', async (args, settings, line) => {
    const ended = await home.run(args, settings);
    expect(ended).toMatchObject({ code: 1, stdout: '' });
    expect(ended.stderr).toMatch(line);
    expect(ended.stderr).not.toMatch(/\n\s+at /);
  });
});

describe('a failure under --json', () => {
  test.each([
    [['nightly', '--json'], { SOURCE_URL: undefined }, /SOURCE_URL: not set/],
    [['sync', 'all', '--fool', '--json'], {}, /unknown option/],
    [
      ['runs', '01a1fc01-6f2e-749d-96ef-db77d717e20d', '--json'],
      {},
      /there is no run/,
    ],
    [
      ['cancel', '01a1fc01-6f2e-749d-96ef-db77d717e20d', '--json'],
      {},
      /there is no run/,
    ],
    [['status', '--json'], { SOURCE_RATE: 'fast' }, /SOURCE_RATE/],
  ])('%s %o is a document on stdout', async (args, settings, message) => {
    const ended = await home.run(args, settings);
    const { error } = JSON.parse(ended.stdout) as {
      error: { code: string; message: string };
    };
    expect([ended.code, error.code, error.message]).toEqual([
      1,
      'USAGE',
      expect.stringMatching(message),
    ]);
  });
});
