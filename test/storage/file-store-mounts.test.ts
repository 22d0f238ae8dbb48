/**
 * Folders on mounts that cannot do all that a local disk can, and files that others may read. The
 * mounts are doubles: Node's own calls answer as CIFS, s3fs and drvfs do.
 */
import fs, { statSync } from 'node:fs';
import { mkdtemp, open, rm, stat } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import {
  afterEach,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
  vi,
} from 'vitest';
import { describeStore } from '../../src/app/describe-store.ts';
import { readConfig } from '../../src/config/environment.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import { Child } from '../support/process.ts';

const signal = new AbortController().signal;
const CONTENT = Buffer.from('an object\n');
const KEY = 'ledger/party=1/one.csv';
let folder: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-mount-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

function failure(code: string): Error {
  return Object.assign(new Error(`${code}: refused by the mount`), { code });
}

/** From here to the end of the test no folder can be synced; files can. */
async function refuseFolderSync(code: string): Promise<void> {
  const handle = await open(folder);
  const prototype = Object.getPrototypeOf(handle) as typeof handle;
  await handle.close();
  const syncFile = Reflect.get<typeof prototype, 'sync'>(prototype, 'sync');
  const spy = vi.spyOn(prototype, 'sync').mockImplementation(async function (
    this: typeof handle,
  ) {
    if ((await this.stat()).isDirectory()) throw failure(code);
    return syncFile.call(this);
  });
  onTestFinished(() => spy.mockRestore());
}

function refuseLinks(code: string): void {
  const spy = vi.spyOn(fs.promises, 'link').mockRejectedValue(failure(code));
  syncBuiltinESMExports();
  onTestFinished(() => {
    spy.mockRestore();
    syncBuiltinESMExports();
  });
}

describe('a folder on a mount', () => {
  test.each(['EINVAL', 'ENOTSUP', 'ENOSYS'])(
    'that answers %s to syncing a folder is used, and doctor says so',
    async (code) => {
      await refuseFolderSync(code);
      await using store = openFileStore(join(folder, 'objects'));
      await store.publishBytes(KEY, CONTENT, signal);
      await store.replaceBytes('newest', CONTENT, signal);
      expect(await buffer(await store.read(KEY, signal))).toEqual(CONTENT);

      const found = await store.probe(signal);
      expect(found).toMatchObject({
        put: 'honoured',
        weaknesses: [expect.stringContaining(code) as string],
      });
      expect(describeStore(store.url, found)).toContain(
        `folders are not synced here (${code})`,
      );
    },
  );

  test('that breaks while a folder is synced is an error', async () => {
    await refuseFolderSync('EIO');
    await using store = openFileStore(join(folder, 'objects'));
    await expect(store.publishBytes(KEY, CONTENT, signal)).rejects.toThrow(
      expect.objectContaining({ code: 'OBJECT_STORE_EIO' }),
    );
  });

  test.each(['EPERM', 'ENOTSUP', 'EINVAL', 'EACCES'])(
    'that answers %s to a link is used by renaming',
    async (code) => {
      refuseLinks(code);
      await using store = openFileStore(join(folder, 'objects'));
      await store.publishBytes(KEY, CONTENT, signal);
      expect(await buffer(await store.read(KEY, signal))).toEqual(CONTENT);
      expect(await store.probe(signal)).toMatchObject({ put: 'ignored' });
    },
  );

  test('that can do everything has no weakness', async () => {
    await using store = openFileStore(join(folder, 'objects'));
    expect(await store.probe(signal)).toEqual({
      put: 'honoured',
      multipart: 'honoured',
      hasOneWinner: true,
    });
  });
});

describe('OBJECT_STORE_UMASK', () => {
  function umaskOf(text: string | undefined): number | undefined {
    const env = text === undefined ? {} : { OBJECT_STORE_UMASK: text };
    return readConfig({ env, cwd: '/' }).objectStoreUmask;
  }

  const modeOf = (path: string): string =>
    (statSync(path).mode & 0o7777).toString(8);

  test.each([
    ['027', '640', '750'],
    ['022', '644', '755'],
    ['077', '600', '700'],
  ])(
    '%s gives objects %s and folders %s, whatever the process has',
    async (text, file, directory) => {
      const before = process.umask(0o077);
      onTestFinished(() => void process.umask(before));
      const root = join(folder, 'objects');
      await using store = openFileStore(root, { umask: umaskOf(text) });
      await store.publishBytes(KEY, CONTENT, signal);
      await store.replaceBytes('runs/newest', CONTENT, signal);
      for (const key of [KEY, 'runs/newest']) {
        expect(modeOf(join(root, key))).toBe(file);
        expect(modeOf(dirname(join(root, key)))).toBe(directory);
      }
      expect(modeOf(root)).toBe(directory);
    },
  );

  test('does not reach the spool', async () => {
    const before = process.umask(0o077);
    onTestFinished(() => void process.umask(before));
    await using store = openFileStore(join(folder, 'objects'), {
      umask: umaskOf('022'),
    });
    const path = await store.spoolPath('x');
    expect(modeOf(dirname(path))).toBe('700');
  });

  test('holds without hard links too', async () => {
    refuseLinks('EPERM');
    const root = join(folder, 'objects');
    await using store = openFileStore(root, { umask: umaskOf('022') });
    await store.publishBytes(KEY, CONTENT, signal);
    expect(modeOf(join(root, KEY))).toBe('644');
  });

  test('is none if it is unset, and no other value is accepted', () => {
    expect(umaskOf(undefined)).toBeUndefined();
    for (const text of ['000', '002', '777', '27', 'rw'])
      expect(() => umaskOf(text)).toThrow('give 077, 027 or 022');
  });

  test.skipIf(process.getuid?.() !== 0)(
    'lets another user read what 022 shares, and nothing without it',
    async () => {
      const before = process.umask(0o077);
      onTestFinished(() => void process.umask(before));
      fs.chmodSync(folder, 0o755);
      const readAsNobody = async (
        umask: string | undefined,
      ): Promise<string> => {
        const root = join(folder, `objects ${umask}`);
        await using store = openFileStore(root, { umask: umaskOf(umask) });
        await store.publishBytes(KEY, CONTENT, signal);
        const path = join(fileURLToPath(store.url), KEY);
        expect((await stat(path)).size).toBe(CONTENT.length);
        await using cat = new Child('cat', [path], {
          uid: 65_534,
          gid: 65_534,
        });
        await cat.end();
        return cat.stdout;
      };
      expect(await readAsNobody('022')).toBe(CONTENT.toString());
      expect(await readAsNobody(undefined)).toBe('');
    },
  );
});
