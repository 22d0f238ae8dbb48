/**
 * What a hostile person does to the files of a log, one thing after the other, each on a
 * copy of the store, and what `verify --deep` reports. Nothing may end in another error.
 */
import { describe, expect, test } from 'vitest';
import { generateKey } from '../../src/proof/signed-note.ts';
import { statementPath } from '../../src/proof/statement.ts';
import { verifyLog } from '../../src/proof/verify-log.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { NEVER_ABORTED } from '../support/samples.ts';
import { PARTY_A, PARTY_B, temporaryStore } from '../warehouse/published.ts';
import { proofWorld } from './proof-world.ts';

const world = await proofWorld();

/** The contents of the files of the log, by key, and those of earlier nights. */
interface LogFilesOf {
  readonly files: Map<string, Buffer>;
  /** The checkpoint after each night. */
  readonly checkpoints: readonly Buffer[];
  /** A statement of another mirror. */
  readonly foreign: Buffer;
}

type Change = (log: LogFilesOf) => unknown;

const CHECKPOINT = 'proof/checkpoint';
const ENTRIES = 'proof/tile/entries/000.p/3';
const HASHES = 'proof/tile/0/000.p/3';
const [FIRST, SECOND, THIRD] = [0, 1, 2].map(
  (night) => `proof/${statementPath(night)}`,
) as [string, string, string];

const CHANGES: readonly (readonly [string, Change, string])[] = [
  [
    'a tile of entries without its last byte',
    cut(ENTRIES, -1),
    'PROOF_LOG_DAMAGED',
  ],
  [
    'a tile of entries cut behind a length',
    cut(ENTRIES, 36),
    'PROOF_LOG_DAMAGED',
  ],
  [
    'a tile of entries cut within a length',
    cut(ENTRIES, 35),
    'PROOF_LOG_DAMAGED',
  ],
  ['an empty tile of entries', cut(ENTRIES, 0), 'PROOF_LOG_DAMAGED'],
  [
    'a tile of entries with one more byte',
    append(ENTRIES, '\0'),
    'PROOF_LOG_DAMAGED',
  ],
  [
    'a tile of hashes without its last byte',
    cut(HASHES, -1),
    'PROOF_LOG_DAMAGED',
  ],
  ['no tile of hashes', remove(HASHES), 'PROOF_LOG_DAMAGED'],
  ['a checkpoint of the night before', rollBack(2), 'PROOF_CHECKPOINT_BEHIND'],
  ['a checkpoint of two nights before', rollBack(1), 'PROOF_LOG_FORKED'],
  [
    'a checkpoint and the statements of the night before',
    (log) => {
      rollBack(2)(log);
      remove(THIRD)(log);
    },
    'PROOF_LOG_FORKED',
  ],
  ['no checkpoint', remove(CHECKPOINT), 'PROOF_LOG_FORKED'],
  ['an empty checkpoint', cut(CHECKPOINT, 0), 'PROOF_SIGNATURE_INVALID'],
  ['two nights that were swapped', swap(FIRST, SECOND), 'PROOF_LOG_DAMAGED'],
  ['the last nights swapped', swap(SECOND, THIRD), 'PROOF_LOG_DAMAGED'],
  [
    'a statement of another mirror',
    ({ files, foreign }) => files.set(SECOND, foreign),
    'PROOF_LOG_DAMAGED',
  ],
  [
    'a statement of another mirror behind the last night',
    ({ files, foreign }) => files.set(`proof/${statementPath(3)}`, foreign),
    'PROOF_LOG_DAMAGED',
  ],
  ['a statement with a line break', append(SECOND, '\n'), 'PROOF_LOG_DAMAGED'],
  ['an empty statement', cut(THIRD, 0), 'PROOF_LOG_DAMAGED'],
  [
    'a checkpoint without the line of its signature',
    edit(CHECKPOINT, (text) => text.slice(0, text.indexOf('\n\n') + 2)),
    'PROOF_SIGNATURE_INVALID',
  ],
  [
    'a checkpoint with a space',
    edit(CHECKPOINT, (text) => text.replace('\n3\n', '\n3 \n')),
    'PROOF_SIGNATURE_INVALID',
  ],
  [
    'a checkpoint with line ends of Windows',
    edit(CHECKPOINT, (text) => text.replaceAll('\n', '\r\n')),
    'PROOF_SIGNATURE_INVALID',
  ],
  [
    'a checkpoint with a line break',
    append(CHECKPOINT, '\n'),
    'PROOF_SIGNATURE_INVALID',
  ],
  [
    'a checkpoint with a line that is no signature',
    append(CHECKPOINT, 'and more\n'),
    'PROOF_SIGNATURE_INVALID',
  ],
  [
    'a checkpoint with another spelling of its signature',
    // The last character before the padding has bits that no byte uses.
    edit(CHECKPOINT, (text) =>
      text.replace(/(.)=\n$/, (_, last: string) => `${nextOf(last)}=\n`),
    ),
    'PROOF_SIGNATURE_INVALID',
  ],
  [
    'a checkpoint with a byte that is not UTF-8',
    ({ files }) => {
      const content = files.get(CHECKPOINT) ?? Buffer.alloc(0);
      content[2] = 0xff;
    },
    'PROOF_SIGNATURE_INVALID',
  ],
  ['no file of records', removeBelow('proof/ledgers/'), 'PROOF_LOG_DAMAGED'],
  ['no file of pages', removeBelow('proof/pages/'), 'PROOF_LOG_DAMAGED'],
  [
    'a file of records that was cut',
    cutBelow('proof/ledgers/'),
    'PROOF_LOG_DAMAGED',
  ],
  [
    'a file of pages that was cut',
    cutBelow('proof/pages/'),
    'PROOF_PAGE_INVALID',
  ],
  ['no report', removeBelow('runs/'), 'OBJECT_MISSING'],
  ['an empty report', cut('runs/1.json', 0), 'PROOF_REPORT_DIFFERS'],
];

describe('verify --deep', () => {
  test('finds each change of the files of the log, and nothing in those unchanged', async () => {
    const log = await writeLog();
    expect(await findings(log, () => undefined)).toEqual([]);
    for (const [name, change, code] of CHANGES) {
      const found = await findings(log, change);
      expect({ name, found }).toEqual({
        name,
        found: expect.arrayContaining([code]) as string[],
      });
    }
  });

  test('finds that a different key of the same name is configured', async () => {
    const log = await writeLog();
    const found = await findings(
      log,
      () => undefined,
      generateKey('mirror.example/test'),
    );
    expect(found).toEqual(['PROOF_SIGNATURE_INVALID']);
  });
});

async function findings(
  log: LogFilesOf,
  change: Change,
  key = world.deps().key,
): Promise<string[]> {
  const files = new Map(
    [...log.files].map(([path, content]) => [path, Buffer.from(content)]),
  );
  change({ ...log, files });
  const objects = await temporaryStore();
  for (const [path, content] of files)
    await objects.replaceBytes(path, content, NEVER_ABORTED);
  const { problems } = await verifyLog({
    store: world.store,
    objects,
    key,
    signal: NEVER_ABORTED,
    isDeep: true,
  });
  return problems.map(({ code }) => code);
}

/** The log of three nights, in the second of which a ledger came. */
async function writeLog(): Promise<LogFilesOf> {
  await world.addDay(PARTY_A, '2023-05-01', 2);
  const checkpoints: Buffer[] = [];
  for (const night of ['0', '1', '2']) {
    if (night === '1') await world.addDay(PARTY_B, '2023-05-02', 1);
    await world.night(night);
    checkpoints.push(await read(world.objects, CHECKPOINT));
  }
  const files = await contentsOf(world.objects);
  const foreign = files.get(FIRST) ?? Buffer.alloc(0);
  return {
    files,
    checkpoints,
    foreign: Buffer.from(
      foreign
        .toString('utf8')
        .replaceAll('mirror.example/test', 'mirror.example/else'),
    ),
  };
}

async function contentsOf(objects: ObjectStore): Promise<Map<string, Buffer>> {
  const contents = new Map<string, Buffer>();
  for await (const { key } of objects.list('', NEVER_ABORTED))
    if (key.startsWith('proof/') || key.startsWith('runs/'))
      contents.set(key, await read(objects, key));
  return contents;
}

async function read(objects: ObjectStore, key: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of await objects.read(key, NEVER_ABORTED))
    chunks.push(chunk as Buffer);
  return Buffer.concat(chunks);
}

function cut(key: string, bytes: number): Change {
  return ({ files }) =>
    files.set(key, (files.get(key) ?? Buffer.alloc(0)).subarray(0, bytes));
}

function append(key: string, text: string): Change {
  return ({ files }) =>
    files.set(
      key,
      Buffer.concat([files.get(key) ?? Buffer.alloc(0), Buffer.from(text)]),
    );
}

function edit(key: string, change: (text: string) => string): Change {
  return ({ files }) =>
    files.set(
      key,
      Buffer.from(change((files.get(key) ?? Buffer.alloc(0)).toString('utf8'))),
    );
}

function remove(key: string): Change {
  return ({ files }) => files.delete(key);
}

function removeBelow(prefix: string): Change {
  return ({ files }) => {
    for (const key of files.keys())
      if (key.startsWith(prefix)) files.delete(key);
  };
}

/** Cuts every file below a prefix in half. */
function cutBelow(prefix: string): Change {
  return ({ files }) => {
    for (const [key, content] of files)
      if (key.startsWith(prefix))
        files.set(key, content.subarray(0, content.length >> 1));
  };
}

function swap(one: string, other: string): Change {
  return ({ files }) => {
    const first = files.get(one) ?? Buffer.alloc(0);
    files.set(one, files.get(other) ?? Buffer.alloc(0));
    files.set(other, first);
  };
}

function rollBack(nights: number): Change {
  return ({ files, checkpoints }) =>
    files.set(CHECKPOINT, checkpoints[nights - 1] ?? Buffer.alloc(0));
}

/** The next character of base64, which has the same first four bits. */
function nextOf(character: string): string {
  const all =
    'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  return all[all.indexOf(character) + 1] ?? 'A';
}
