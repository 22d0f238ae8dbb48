/** The files of downloads: each made once, a few at once, and whole or not there. */
import { mkdtemp, readdir, rm, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text as readText } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Download, Downloads } from '../../../src/api/mirror/downloads.ts';

let dir: string;
let downloads: Downloads;
let made: string[];
let release: () => void;
let released: Promise<void>;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'ledger-mirror downloads '));
  downloads = new Downloads(dir);
  made = [];
  released = new Promise((resolve) => (release = resolve));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

function open(name: string, failure?: Error): Promise<Download> {
  return downloads.open(name, 'ledger.csv', async function* () {
    made.push(name);
    await released;
    yield Buffer.from(`of ${name}\n`);
    if (failure !== undefined) throw failure;
  });
}

async function textOf(download: Download): Promise<string> {
  return readText(download.read({ start: 0, end: download.bytes }));
}

async function names(): Promise<readonly string[]> {
  return (await readdir(dir)).map((file) => file.split('.', 1)[0] ?? '').toSorted();
}

describe('a download', () => {
  it('is made once for all who ask for it, now or later', async () => {
    const asked = [open('a'), open('a'), open('a')];
    release();
    const found = [...(await Promise.all(asked)), await open('a')];
    expect(await Promise.all(found.map(textOf))).toEqual(Array(4).fill('of a\n'));
    expect(new Set(found.map(({ tag }) => tag)).size).toBe(1);
    expect(made).toEqual(['a']);
  });

  it('is refused where too many are being made at once, but served where it is already there', async () => {
    release();
    await open('there');
    released = new Promise((resolve) => (release = resolve));
    const making = [open('a'), open('b')];
    while (made.length < 3) await sleep(1);
    await expect(open('c')).rejects.toMatchObject({ statusCode: 429 });
    expect(await textOf(await open('there'))).toBe('of there\n');
    release();
    await Promise.all(making);
    expect(await textOf(await open('c'))).toBe('of c\n');
  });

  it('leaves nothing behind when it fails, and is made when it is asked for again', async () => {
    release();
    await expect(open('a', new Error('the object is gone'))).rejects.toThrow('the object is gone');
    expect(await readdir(dir)).toEqual([]);
    expect(await textOf(await open('a'))).toBe('of a\n');
  });

  it('is made anew where its file is gone', async () => {
    release();
    await open('a');
    for (const name of await readdir(dir)) await rm(join(dir, name));
    expect(await textOf(await open('a'))).toBe('of a\n');
    expect(made).toEqual(['a', 'a']);
  });

  it('is told in full while another process removes its files', async () => {
    release();
    const over = new AbortController();
    const removing = (async () => {
      while (!over.signal.aborted) {
        for (const name of await readdir(dir))
          if (!name.includes('partial')) await rm(join(dir, name), { force: true });
      }
    })();
    for (let round = 0; round < 300; round += 1) expect((await open('a')).bytes).toBe(5);
    over.abort();
    await removing;
  });

  it('is dropped after a day', async () => {
    release();
    await open('old');
    const dayAgo = Date.now() / 1_000 - 86_401;
    for (const name of await readdir(dir)) await utimes(join(dir, name), dayAgo, dayAgo);
    await open('new');
    expect(await names()).toEqual(['new']);
  });
});

describe('the disk space of downloads', () => {
  it('is bounded: the oldest file is removed for the newest', async () => {
    downloads = new Downloads(dir, 25);
    release();
    for (const [age, name] of ['first', 'second', 'third'].entries()) {
      await open(name);
      const atSeconds = Date.now() / 1_000 - 60 + age;
      const file = (await readdir(dir)).find((one) => one.startsWith(`${name}.`));
      await utimes(join(dir, file!), atSeconds, atSeconds);
    }
    expect(await names()).toEqual(['second', 'third']);
    expect(await textOf(await open('first'))).toBe('of first\n');
  });

  it('is bounded for one file too, which leaves nothing behind', async () => {
    downloads = new Downloads(dir, 5);
    release();
    await expect(open('large')).rejects.toMatchObject({ statusCode: 429 });
    expect(await readdir(dir)).toEqual([]);
  });
});
