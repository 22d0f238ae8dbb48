/**
 * Other people's tools check what a mirror published, without ledger-mirror: Go's own
 * packages of signed notes and transparency logs, and Python's standard library. Their
 * programs are printed in docs/proof.md.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  decodeSignerKey,
  encodeVerifierKey,
} from '../../src/proof/signed-note.ts';
import { type MirrorHome, openHome } from '../cli/mirror-home.ts';
import { openFreshDatabase } from '../support/database.ts';
import { type Sandbox, startSandbox } from '../support/sandbox.ts';

const PROGRAMS = resolve(import.meta.dirname, '../../docs/proof');
const run = promisify(execFile);

let sandbox: Sandbox;
let home: MirrorHome;
const stack = new AsyncDisposableStack();
let folder: string;
let scratch: string;
let key: string;

beforeAll(async () => {
  sandbox = stack.use(
    await startSandbox({ parties: 120, entriesMean: 60, rateLimit: 'none' }),
  );
  const database = stack.use(await openFreshDatabase());
  home = stack.use(
    await openHome({ SOURCE_URL: sandbox.url, DATABASE_URL: database.url }),
  );
  for (let night = 0; night < 3; night += 1) await home.json(['nightly']);
  folder = join(home.objectsDir, 'proof');
  scratch = await mkdtemp(join(tmpdir(), 'ledger-mirror-tools-'));
  stack.defer(() => rm(scratch, { recursive: true, force: true }));
  const signer = await readFile(join(home.dataDir, 'proof.key'), 'utf8');
  key = encodeVerifierKey(decodeSignerKey(signer));
});
afterAll(() => stack[Symbol.asyncDispose]());

describe("Go's sumdb/note and sumdb/tlog", () => {
  test('check the signature, every inclusion, and that each night continues the last', async () => {
    const { stdout } = await runGo(folder);
    expect(stdout).toContain('3 nights hold');
  });

  test.each(['statements/000000001', 'tile/0/000.p/3', 'checkpoint'])(
    'refuse a log of which one byte of %s is another',
    async (path) => {
      const copy = join(scratch, path.replaceAll('/', '-'));
      await run('cp', ['-r', folder, copy]);
      const content = await readFile(join(copy, path));
      content[20] = (content[20] ?? 0) ^ 1;
      await writeFile(join(copy, path), content);
      await expect(runGo(copy)).rejects.toMatchObject({ code: 1 });
    },
  );
});

describe("Python's standard library", () => {
  test('finds a ledger in a published folder and checks it up to the checkpoint', async () => {
    const party = await partyWithRows();
    const program = join(PROGRAMS, 'check_ledger.py');
    const { stdout } = await run('python3', [program, folder, party]);
    expect(JSON.parse(stdout)).toMatchObject({ party });
  });

  test('sums a stored CSV by month as the record of its ledger has it, in at most 40 lines', async () => {
    const party = await partyWithRows();
    const csv = join(scratch, 'ledger.csv');
    await home.run(['export', '--party', party, '--out', csv]);
    const program = join(PROGRAMS, 'ledger_digest.py');
    const { stdout } = await run('python3', [program, csv]);
    const { stdout: record } = await run('python3', [
      join(PROGRAMS, 'check_ledger.py'),
      folder,
      party,
    ]);
    const { months } = JSON.parse(record) as { months: readonly string[][] };
    const lines = stdout.trimEnd().split('\n');
    expect(lines.map((line) => line.split(' '))).toEqual(months);
    const source = await readFile(program, 'utf8');
    expect(source.trimEnd().split('\n').length).toBeLessThanOrEqual(40);
  });
});

/** Builds the program of the docs once, and runs it. */
async function runGo(log: string) {
  const program = join(scratch, 'checklog');
  const cwd = join(PROGRAMS, 'checklog');
  await run('go', ['build', '-o', program, '.'], { cwd });
  return run(program, [log, key]);
}

async function partyWithRows(): Promise<string> {
  const { document } = await home.json([
    'query',
    'select party_id from entries group by 1 order by count(*) desc limit 1',
  ]);
  const { rows } = document as unknown as {
    readonly rows: readonly { readonly party_id: string }[];
  };
  const [row] = rows;
  if (row === undefined) throw new Error('the mirror has no entries');
  return row.party_id;
}
