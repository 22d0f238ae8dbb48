/**
 * `prove`, `check-proof`, `compare` and `verify` on mirrors of a sandbox network, and
 * what somebody changes afterwards.
 */
import { execFile } from 'node:child_process';
import {
  appendFile,
  chmod,
  copyFile,
  cp,
  readdir,
  readFile,
  rm,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  decodeSignerKey,
  encodeSignerKey,
  encodeVerifierKey,
  generateKey,
} from '../../src/proof/signed-note.ts';
import type { LogFindings } from '../../src/proof/verify-log.ts';
import { type MirrorHome, openHome } from '../cli/mirror-home.ts';
import { type FreshDatabase, openFreshDatabase } from '../support/database.ts';
import { startSandbox } from '../support/sandbox.ts';
import { waitFor } from '../support/wait-for.ts';

const run = promisify(execFile);
const stack = new AsyncDisposableStack();
let database: FreshDatabase;
let otherDatabase: FreshDatabase;
let source: Readonly<Record<string, string>>;
let home: MirrorHome;
let other: MirrorHome;
let key: string;
let party: string;

beforeAll(async () => {
  const sandbox = stack.use(
    await startSandbox({ parties: 40, entriesMean: 60, rateLimit: 'none' }),
  );
  database = stack.use(await openFreshDatabase());
  otherDatabase = stack.use(await openFreshDatabase());
  source = { SOURCE_URL: sandbox.url };
  home = stack.use(await openHome({ ...source, DATABASE_URL: database.url }));
  other = stack.use(
    await openHome({ ...source, DATABASE_URL: otherDatabase.url }),
  );
  await home.json(['nightly']);
  await home.json(['nightly']);
  await other.json(['nightly']);
  const signer = await readFile(join(home.dataDir, 'proof.key'), 'utf8');
  key = encodeVerifierKey(decodeSignerKey(signer));
  const asked =
    'select party_id from entries group by 1 order by count(*) desc';
  const { document } = await home.json(['query', asked]);
  const { rows } = document as unknown as {
    readonly rows: readonly { readonly party_id: string }[];
  };
  party = rows[0]?.party_id ?? '';
});
afterAll(() => stack[Symbol.asyncDispose]());

describe('prove and check-proof', () => {
  test('prove a ledger, whose proof and CSV are checked without the mirror', async () => {
    await home.run(['prove', '--party', party, '--output', 'proof.json']);
    await home.run(['export', '--party', party, '--out', 'ledger.csv']);
    await using elsewhere = await openHome({});
    for (const name of ['proof.json', 'ledger.csv'])
      await cp(join(home.dir, name), join(elsewhere.dir, name));
    const checked = await elsewhere.run([
      'check-proof',
      'proof.json',
      'ledger.csv',
      '--key',
      key,
    ]);
    expect(checked).toMatchObject({ code: 0, stderr: '' });
    expect(checked.stdout).toContain('The proof holds.');
    expect(checked.stdout).toContain('The CSV is what the mirror held');
    expect(await readdir(elsewhere.dir)).not.toContain('data');
  });

  test('the stored objects of a ledger are its CSV in parts', async () => {
    await home.run(['prove', '--party', party, '--output', 'proof.json']);
    const stored = await filesBelow(join(home.objectsDir, 'ledger'));
    const parts = stored.filter(
      (path) => path.includes(party) && path.endsWith('.csv.zst'),
    );
    expect(parts.length).toBeGreaterThan(0);
    const { code, document } = await home.json([
      'check-proof',
      'proof.json',
      ...parts,
      '--key',
      key,
    ]);
    expect([code, document['csv']]).toEqual([
      0,
      { files: parts, differences: [] },
    ]);
  });

  test('check-proof ends with 2 and names the month if the CSV lacks a row', async () => {
    await home.run(['prove', '--party', party, '--output', 'proof.json']);
    await home.run(['export', '--party', party, '--out', 'ledger.csv']);
    const csv = join(home.dir, 'ledger.csv');
    const lines = (await readFile(csv, 'utf8')).split('\n');
    await writeFile(csv, [...lines.slice(0, 3), ...lines.slice(4)].join('\n'));
    const { code, stdout } = await home.run([
      'check-proof',
      'proof.json',
      'ledger.csv',
      '--key',
      key,
    ]);
    expect(code).toBe(2);
    expect(stdout).toMatch(
      /2023-05: the CSV has \d+ entries, the mirror held \d+/,
    );
  });

  test('check-proof says that a CSV is newer than the night, and what to do', async () => {
    await home.run(['prove', '--party', party, '--output', 'proof.json']);
    await home.run(['export', '--party', party, '--out', 'ledger.csv']);
    const csv = join(home.dir, 'ledger.csv');
    const lines = (await readFile(csv, 'utf8')).trimEnd().split('\n');
    const newer = (lines.at(-1) ?? '').replace(/\d{4}-\d\d-\d\d/, '2026-01-02');
    const check = async (rows: readonly string[]) => {
      await writeFile(csv, [...rows, ''].join('\n'));
      return home.run([
        'check-proof',
        'proof.json',
        'ledger.csv',
        '--key',
        key,
      ]);
    };
    const later = await check([...lines, newer]);
    expect(later.code).toBe(2);
    expect(later.stdout).toMatch(
      /The CSV is newer than night \d+: it has 1 entry after (2023-\S+Z), the end of what .* All its earlier entries are what the mirror held\.\nExport the ledger again with --to \1, or prove a later night with 'npx ledger-mirror prove --party [0-9a-f]{8}'\.\n$/,
    );
    const wrongToo = await check([...lines.toSpliced(3, 1), newer]);
    expect(wrongToo.code).toBe(2);
    expect(wrongToo.stdout).toMatch(
      /The CSV is not what the mirror held:\n(?: .*\n)+The CSV was probably exported after night \d+: it has 1 entry after /,
    );
    const broken = await check(lines.with(2, '1,2,3'));
    expect(broken.code).toBe(1);
    expect(broken.stderr).toContain(
      'Cannot read ledger.csv, line 3: it has 3 fields',
    );
  });

  test.each([
    ['another key', () => encodeVerifierKey(generateKey('another'))],
    ['no key', () => 'my key'],
    ['a private key', () => encodeSignerKey(generateKey('mine'))],
  ])('check-proof refuses %s with one line', async (_, given) => {
    await home.run(['prove', '--party', party, '--output', 'proof.json']);
    const checked = await home.run([
      'check-proof',
      'proof.json',
      '--key',
      given(),
    ]);
    expect(checked.code).toBe(1);
    expect(checked.stderr.trimEnd().split('\n')).toHaveLength(1);
    expect(checked.stderr).not.toContain('PRIVATE+KEY');
  });

  test.each(['doctor', 'status'])('%s prints the public key', async (name) => {
    const { stdout } = await home.run([name]);
    expect(stdout).toContain(key);
  });

  test('status --json and the API have the public key and the number of nights', async () => {
    const { document } = await home.json(['status']);
    expect(document['proof']).toEqual({ publicKey: key, nights: 2 });
    const server = home.start(['serve'], { API_PORT: '0' });
    const [, port] = await waitFor(
      () => /127\.0\.0\.1:(\d+)/.exec(server.stderr + server.stdout),
      { what: 'the API' },
    );
    const answer = await fetch(`http://127.0.0.1:${port}/mirror/status`);
    expect(await answer.json()).toMatchObject({
      proof: { publicKey: key, nights: 2 },
    });
  });
});

describe('compare', () => {
  test('says in one line that two mirrors of one network hold the same', async () => {
    const { code, stdout } = await home.run([
      'compare',
      home.dataDir,
      other.dataDir,
    ]);
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^Both hold the same: 40 ledgers with [\d,]+ entries/,
    );
    expect(stdout.trimEnd().split('\n')).toHaveLength(1);
  });

  test('reads a running mirror, a published folder and a statement alike', async () => {
    const server = home.start(['serve'], { API_PORT: '0' });
    const [, port] = await waitFor(
      () => /127\.0\.0\.1:(\d+)/.exec(server.stderr + server.stdout),
      { what: 'the API' },
    );
    const statement = join(home.objectsDir, 'proof/statements/000000001');
    for (const side of [
      `http://127.0.0.1:${port}`,
      join(home.objectsDir, 'proof'),
      statement,
    ]) {
      const compared = await home.run(['compare', side, other.dataDir]);
      expect(compared).toMatchObject({ code: 0, stderr: '' });
    }
  });

  test.each(['nowhere', 'ftp://host/x', 'http://127.0.0.1:9'])(
    'ends with one line if %s is no mirror',
    async (side) => {
      const compared = await home.run(['compare', side, home.dataDir]);
      expect([1, 75]).toContain(compared.code);
      expect(compared.stderr.trimEnd().split('\n')).toHaveLength(1);
    },
  );

  test('names the ledger and the month that another mirror has otherwise', async () => {
    const segments = `select segment_id from mirror.segments where party_id = $1 and status = 'current'`;
    const { pool } = otherDatabase;
    await pool.query(
      `update mirror.segment_months set rows = rows + 1 where segment_id = (${segments} limit 1)`,
      [party],
    );
    await pool.query(
      `update mirror.segments set loaded_at = clock_timestamp() where segment_id in (${segments})`,
      [party],
    );
    await other.json(['nightly']);
    const compared = await home.run(['compare', home.dataDir, other.dataDir]);
    expect(compared.code).toBe(2);
    expect(compared.stdout).toContain('They differ in 1 ledger.');
    expect(compared.stdout).toContain(party);
    expect(compared.stdout).toMatch(
      /2023-05: left [\d,]+ entries, right [\d,]+/,
    );
  });
});

describe('verify', () => {
  test('finds nothing in a log that nobody changed', async () => {
    const { code, document } = await home.json(['verify', '--deep']);
    expect([code, document.evidence?.['proof']]).toMatchObject([
      0,
      { statements: 2, problemCount: 0 },
    ]);
  });

  test.each([
    ['a statement', 'proof/statements/000000000', 'PROOF_LOG_DAMAGED'],
    ['an entry', 'proof/tile/entries/000.p/2', 'PROOF_LOG_DAMAGED'],
    ['a tile', 'proof/tile/0/000.p/2', 'PROOF_LOG_DAMAGED'],
    ['a record', 'proof/ledgers/', 'PROOF_LOG_DAMAGED'],
    ['a page', 'proof/pages/', 'PROOF_LOG_DAMAGED'],
    ['a report', 'runs/', 'PROOF_REPORT_DIFFERS'],
    ['the checkpoint', 'proof/checkpoint', 'PROOF_SIGNATURE_INVALID'],
  ])('--deep finds one changed byte of %s', async (_, prefix, problem) => {
    await using copy = await copyOf(home);
    const files = await filesBelow(copy.objectsDir);
    const path = files.find((file) =>
      file.startsWith(join(copy.objectsDir, prefix)),
    );
    if (path === undefined) throw new Error(`there is no ${prefix}`);
    const content = await readFile(path);
    // Not the first byte: a changed value, in a file that can still be read.
    const at = content.indexOf('1', 8) === -1 ? 5 : content.indexOf('1', 8);
    content[at] = (content[at] ?? 0) ^ 1;
    await writeFile(path, content);
    expect(await logProblemsOf(copy)).toContain(problem);
  });

  test('--deep finds a night that was taken out of the middle', async () => {
    await using copy = await copyOf(home);
    await rm(join(copy.objectsDir, 'proof/statements/000000000'));
    expect(await logProblemsOf(copy)).toContain('PROOF_LOG_DAMAGED');
  });

  test('finds that the whole log was written anew by another key', async () => {
    await using copy = await copyOf(home);
    await rm(join(copy.objectsDir, 'proof'), { recursive: true });
    await cp(join(other.objectsDir, 'proof'), join(copy.objectsDir, 'proof'), {
      recursive: true,
    });
    expect(await logProblemsOf(copy, ['verify'])).toContain(
      'PROOF_SIGNATURE_INVALID',
    );
  });

  test('--against finds that a kept checkpoint is of another history', async () => {
    const kept = join(home.dir, 'kept');
    await cp(join(home.objectsDir, 'proof/checkpoint'), kept);
    const same = await home.json(['verify', '--against', kept]);
    expect(same.code).toBe(0);
    await cp(join(other.objectsDir, 'proof/checkpoint'), kept);
    const problems = await logProblemsOf(home, ['verify', '--against', kept]);
    expect(problems).toContain('PROOF_LOG_FORKED');
  });

  test('--deep finds a ledger whose sums were rewritten with care', async () => {
    const { pool } = database;
    const change = (by: number) =>
      pool.query(
        `update mirror.segment_months set rows = rows + $2 where segment_id =
          (select min(segment_id) from mirror.segments where party_id = $1 and status = 'current')`,
        [party, by],
      );
    await change(1);
    const problems = await logProblemsOf(home);
    await change(-1);
    expect(problems).toContain('PROOF_LEDGER_DIFFERS');
  });
});

describe('a night whose log cannot be continued', () => {
  test('is suspicious, says why, and publishes its report all the same', async () => {
    await using copy = await copyOf(home);
    await appendFile(join(copy.objectsDir, 'proof/checkpoint'), 'x');
    const { code, document } = await copy.json(['nightly']);
    expect([code, document.verdict]).toEqual([2, 'suspicious']);
    expect(document.evidence).toMatchObject({
      proof: { code: 'PROOF_SIGNATURE_INVALID' },
      report: expect.stringMatching(/^runs\//) as string,
    });
  });
});

describe('the key', () => {
  const doctor = async (
    mirror: MirrorHome,
    settings: Readonly<Record<string, string>> = {},
  ): Promise<string> => {
    const { stdout } = await mirror.run(['doctor'], settings);
    return /^.*\bproof\b.*$/m.exec(stdout)?.[0] ?? stdout;
  };

  test('doctor warns of a key file that every user may read, and of no other', async () => {
    await using copy = await copyOf(home);
    const own = join(copy.dataDir, 'proof.key');
    const given = join(copy.dir, 'given.key');
    await copyFile(own, given);
    const places = [
      [own, {}],
      [given, { PROOF_KEY_FILE: given }],
    ] as const;
    for (const [path, settings] of places) {
      await chmod(path, 0o644);
      const line = await doctor(copy, settings);
      expect(line).toContain(`every user of this machine may read ${path}`);
      expect(line).toContain('chmod 600');
      await chmod(path, 0o440);
      expect(await doctor(copy, settings)).not.toContain('every user');
    }
  });

  test('doctor names a key file that has another key than the database', async () => {
    await using copy = await copyOf(home);
    const own = join(copy.dataDir, 'proof.key');
    await writeFile(own, encodeSignerKey(generateKey('another')));
    expect(await doctor(copy)).toContain(`${own} has another key or none`);
  });

  test('another key than the log was signed with is refused, with what to do', async () => {
    await using copy = await copyOf(home);
    const another = generateKey('another');
    const settings = { PROOF_KEY: encodeSignerKey(another) };
    const wanted = [
      `${/^[^+]+\+[0-9a-f]+/.exec(key)?.[0]} signed it`,
      'the key of this mirror is another+',
      'give it the former key again',
      'begin another log (docs/proof.md)',
    ];
    const before = await readFile(join(copy.objectsDir, 'proof/checkpoint'));
    const { code, document } = await copy.json(['nightly'], settings);
    expect([code, document.verdict]).toEqual([2, 'suspicious']);
    const problem = JSON.stringify(document.evidence?.['proof']);
    const line = await doctor(copy, settings);
    for (const part of wanted) {
      expect(problem).toContain(part);
      expect(line).toContain(part);
    }
    const after = await readFile(join(copy.objectsDir, 'proof/checkpoint'));
    expect(after).toEqual(before);
  });
});

/** A mirror on the same database, whose objects may be changed. */
async function copyOf(original: MirrorHome): Promise<MirrorHome> {
  const copy = await openHome({ ...source, DATABASE_URL: database.url });
  const { dataDir } = original;
  await run('cp', ['-r', dataDir, copy.dataDir]);
  return copy;
}

/** The codes of what `verify` finds in the log of nights. */
async function logProblemsOf(
  mirror: MirrorHome,
  command: readonly string[] = ['verify', '--deep'],
): Promise<readonly string[]> {
  const { code, document } = await mirror.json([...command]);
  expect(code).toBe(2);
  const proof = document.evidence?.['proof'] as LogFindings;
  return proof.problems.map((problem) => problem.code);
}

async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, {
    recursive: true,
    withFileTypes: true,
  });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .toSorted();
}
