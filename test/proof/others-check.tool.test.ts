/**
 * Other people's tools check what a mirror published, without ledger-mirror: Go's own
 * packages of signed notes and transparency logs, and Python's standard library. Their
 * programs are printed in docs/proof.md.
 */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFile,
  mkdtemp,
  readdir,
  readFile,
  rm,
  writeFile,
} from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { signCheckpoint } from '../../src/proof/checkpoint.ts';
import { leafHash, rootHash } from '../../src/proof/merkle.ts';
import {
  decodeSignerKey,
  decodeVerifierKey,
  encodeVerifierKey,
  generateKey,
  type SignerKey,
} from '../../src/proof/signed-note.ts';
import { statementEntry, statementPath } from '../../src/proof/statement.ts';
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
let signerKey: SignerKey;

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
  signerKey = decodeSignerKey(signer);
  key = encodeVerifierKey(signerKey);
});
afterAll(() => stack[Symbol.asyncDispose]());

describe("Go's sumdb/note and sumdb/tlog", () => {
  test('check the signature, every inclusion, and that each night continues the last', async () => {
    await using server = await serveFolder(folder);
    for (const place of [folder, server.url]) {
      const { stdout } = await runGo(place);
      expect(stdout).toContain('3 nights hold');
    }
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

  test('find that a log has lost the nights of a kept checkpoint', async () => {
    const kept = join(folder, 'checkpoint');
    const { stdout } = await runGo(folder, kept);
    expect(stdout).toContain('the 3 nights of the kept checkpoint');

    const copy = join(scratch, 'put-back');
    await run('cp', ['-r', folder, copy]);
    await writeFile(join(copy, 'checkpoint'), await signFirst(2));
    expect((await runGo(copy)).stdout).toContain('2 nights hold');
    await expect(runGo(copy, kept)).rejects.toMatchObject({
      code: 1,
      stderr: 'the kept checkpoint has 3 nights, and the log has 2\n',
    });
  });

  test('find that a history was written anew, although its key signed it', async () => {
    const kept = join(scratch, 'kept');
    await writeFile(kept, await signFirst(2));
    expect((await runGo(folder, kept)).stdout).toContain('the 2 nights');

    const other = { size: 2, root: rootHash([leafHash('another night')]) };
    await writeFile(kept, signCheckpoint(other, signerKey));
    await expect(runGo(folder, kept)).rejects.toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        'the nights of the kept checkpoint',
      ) as string,
    });
  });
});

/** The checkpoint that the mirror signed when its log had this many nights. */
async function signFirst(size: number): Promise<string> {
  const leaves: Buffer[] = [];
  for (let night = 0; night < size; night += 1) {
    const statement = await readFile(join(folder, statementPath(night)));
    leaves.push(leafHash(statementEntry(statement)));
  }
  return signCheckpoint({ size, root: rootHash(leaves) }, signerKey);
}

describe("Python's standard library", () => {
  test('checks the signature, the log and the record of a ledger, in a folder, at an address and in a proof', async () => {
    const party = await partyWithRows();
    const proof = join(scratch, 'proof.json');
    await home.run(['prove', '--party', party, '--output', proof]);
    await using server = await serveFolder(folder);
    for (const place of [folder, server.url, proof]) {
      const { stdout, stderr } = await checkLedger(place, party, key);
      expect(JSON.parse(stdout)).toMatchObject({ party });
      expect(stderr).toContain('signed by KEY');
    }
  });

  test('says that the signature was not checked if it has no key', async () => {
    const { stderr } = await checkLedger(folder, await partyWithRows());
    expect(stderr).toContain('THE SIGNATURE WAS NOT CHECKED');
  });

  test.each([
    ['checkpoint', 'a byte of the signature', () => -20],
    ['tile/entries/000.p/3', 'a hash', () => 30],
    ['statements/000000002', 'a byte', () => 30],
    ['pages/', 'the hash of the record', atParty(80)],
    ['ledgers/', 'the id of the ledger', atParty(10)],
  ])(
    'refuses a published folder of which %s has %s changed',
    async (...changed) => {
      const [path, , placeIn] = changed;
      const party = await partyWithRows();
      const copy = join(scratch, `python-${path.replaceAll('/', '-')}`);
      await run('cp', ['-r', folder, copy]);
      const names = path.endsWith('/') ? await readdir(join(copy, path)) : [''];
      for (const name of names) {
        const content = await readFile(join(copy, path + name));
        const at = placeIn(content, party);
        if (at === undefined) continue;
        const index = at < 0 ? content.length + at : at;
        content[index] = (content[index] ?? 0) ^ 1;
        await writeFile(join(copy, path + name), content);
      }
      await expect(checkLedger(copy, party, key)).rejects.toMatchObject({
        code: 1,
        stdout: '',
        stderr: expect.stringMatching(/^NOT PROVEN/) as string,
      });
    },
  );

  test('refuses a key of the same name that did not sign', async () => {
    const other = encodeVerifierKey(generateKey(decodeVerifierKey(key).name));
    const checked = checkLedger(folder, await partyWithRows(), other);
    await expect(checked).rejects.toMatchObject({
      stderr: expect.stringContaining('NOT PROVEN') as string,
    });
  });

  test.each(['', 'x', 'a+b+c', 'mirror.example+00000000+AQ=='])(
    'blames the key and not the mirror if the key is %j',
    async (given) => {
      await expect(checkLedger(folder, 'any', given)).rejects.toMatchObject({
        stderr: 'NOT PROVEN: KEY is not a public key of a log\n',
      });
    },
  );

  test('refuses a checkpoint with a line that is no signature, as Go does', async () => {
    const copy = join(scratch, 'python-more');
    await run('cp', ['-r', folder, copy]);
    await appendFile(join(copy, 'checkpoint'), 'and more\n');
    const checked = checkLedger(copy, await partyWithRows(), key);
    await expect(checked).rejects.toMatchObject({
      stderr: expect.stringContaining('NOT PROVEN') as string,
    });
    await expect(runGo(copy)).rejects.toMatchObject({ code: 1 });
  });

  test('sums a stored CSV by month as the record of its ledger has it, in at most 40 lines', async () => {
    const party = await partyWithRows();
    const csv = join(scratch, 'ledger.csv');
    await home.run(['export', '--party', party, '--out', csv]);
    const program = join(PROGRAMS, 'ledger_digest.py');
    const { stdout } = await run('python3', [program, csv]);
    const { stdout: record } = await checkLedger(folder, party, key);
    const { months } = JSON.parse(record) as { months: readonly string[][] };
    const lines = stdout.trimEnd().split('\n');
    expect(lines.map((line) => line.split(' '))).toEqual(months);
    const source = await readFile(program, 'utf8');
    expect(source.trimEnd().split('\n').length).toBeLessThanOrEqual(40);
  });
});

/** Finds a byte behind the beginning of a party's id. */
function atParty(bytes: number) {
  return (content: Buffer, party: string): number | undefined => {
    const at = content.indexOf(party);
    return at === -1 ? undefined : at + bytes;
  };
}

function checkLedger(place: string, party: string, signer?: string) {
  const program = join(PROGRAMS, 'check_ledger.py');
  const given = signer === undefined ? [party] : [party, signer];
  return run('python3', [program, place, ...given]);
}

/** Serves the files of a folder, as any web server without ranges does. */
async function serveFolder(served: string) {
  const server = createServer((request, response) => {
    readFile(join(served, request.url ?? '')).then(
      (content) => response.end(content),
      () => response.writeHead(404).end(),
    );
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await once(server.close(), 'close');
    },
  };
}

/** Builds the program of the docs once, and runs it. */
async function runGo(log: string, ...kept: readonly string[]) {
  const program = join(scratch, 'checklog');
  const cwd = join(PROGRAMS, 'checklog');
  await run('go', ['build', '-o', program, '.'], { cwd });
  return run(program, [log, key, ...kept]);
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
