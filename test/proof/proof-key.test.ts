/** The key that signs the nights, in each state of its file. */
import {
  chmod,
  mkdir,
  mkdtemp,
  readFile,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openProofKey } from '../../src/app/night-proof.ts';
import { readConfig } from '../../src/config/environment.ts';
import { examineKeyFile, openKey } from '../../src/proof/proof-key.ts';
import { encodeSignerKey, generateKey } from '../../src/proof/signed-note.ts';

const FIRST = encodeSignerKey(generateKey('mirror.example/first'));
const OTHER = encodeSignerKey(generateKey('mirror.example/other'));

let dir = '';
let ownFile = '';
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ledger-mirror-key-'));
  ownFile = join(dir, 'proof.key');
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** The database's copy of the key. */
function keeperOf(signingKey: string | null) {
  const keeper = {
    kept: signingKey,
    readKey: async () => ({ mirrorId: 'an-id', signingKey: keeper.kept }),
    keepKey: async (given: string) => {
      keeper.kept ??= given;
      return keeper.kept;
    },
  };
  return keeper;
}

async function open(keeper: ReturnType<typeof keeperOf>): Promise<string> {
  const places = { given: undefined, ownFile, name: undefined };
  return encodeSignerKey(await openKey(places, keeper));
}

describe('openKey', () => {
  test('makes a key at first use, which only its owner may read', async () => {
    const keeper = keeperOf(null);
    const made = await open(keeper);
    expect(keeper.kept).toBe(made);
    expect(await readFile(ownFile, 'utf8')).toBe(`${made}\n`);
    expect((await stat(ownFile)).mode & 0o777).toBe(0o600);
    expect(await open(keeper)).toBe(made);
  });

  test('takes the key of the file if the database was lost', async () => {
    await writeFile(ownFile, `${FIRST}\n`);
    const keeper = keeperOf(null);
    expect(await open(keeper)).toBe(FIRST);
    expect(keeper.kept).toBe(FIRST);
  });

  test.each([
    ['', 'the file is empty'],
    ['a note\n', 'the file does not contain a signed-note key'],
    [FIRST.slice(0, 40), 'the file does not contain a signed-note key'],
  ])('stores nothing of a file with %j, and says so', async (text, reason) => {
    await writeFile(ownFile, text);
    const keeper = keeperOf(null);
    await expect(open(keeper)).rejects.toMatchObject({
      code: 'PROOF_KEY_INVALID',
      message: expect.stringContaining(`${ownFile}: ${reason}`) as string,
    });
    expect(keeper.kept).toBeNull();
    await writeFile(ownFile, FIRST);
    expect(await open(keeper)).toBe(FIRST);
  });

  test.each(['', OTHER])(
    'goes on with the key of the database if the file has %j',
    async (text) => {
      await writeFile(ownFile, text);
      expect(await open(keeperOf(FIRST))).toBe(FIRST);
      expect(await readFile(ownFile, 'utf8')).toBe(text);
    },
  );

  test('names a key file that is a folder', async () => {
    await mkdir(ownFile);
    await expect(open(keeperOf(FIRST))).rejects.toMatchObject({
      code: 'PROOF_KEY_UNREADABLE',
      message: expect.stringContaining('EISDIR') as string,
    });
  });

  test('signs with the key that was read at the start until a restart', async () => {
    const path = join(dir, 'given');
    await writeFile(path, FIRST);
    const read = () => readConfig({ env: { PROOF_KEY_FILE: path }, cwd: dir });
    const config = read();
    await writeFile(path, OTHER);
    const none = undefined as never;
    expect(encodeSignerKey(await openProofKey(config, none))).toBe(FIRST);
    expect(encodeSignerKey(await openProofKey(read(), none))).toBe(OTHER);
  });
});

describe('examineKeyFile', () => {
  test.each([
    [0o600, undefined],
    [0o440, undefined],
    [0o640, undefined],
    [0o644, 'read'],
    [0o444, 'read'],
    [0o646, 'replace'],
  ])('of a file with the mode %o: others may %s it', async (mode, exposure) => {
    await writeFile(ownFile, FIRST);
    await chmod(ownFile, mode);
    const facts = await examineKeyFile(ownFile);
    expect(facts).toMatchObject({ mode: `0${mode.toString(8)}` });
    expect(facts?.exposure).toBe(exposure);
    expect(facts?.key).toBeDefined();
  });

  test('finds no key in an empty file, and nothing where no file is', async () => {
    expect(await examineKeyFile(ownFile)).toBeUndefined();
    await writeFile(ownFile, '');
    expect((await examineKeyFile(ownFile))?.key).toBeUndefined();
  });
});
