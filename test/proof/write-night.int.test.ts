/** The statement of a night: what it says, what it costs, and what a kill leaves behind. */
import { errorLine } from '../../src/errors/errors.ts';
import { describe, expect, test } from 'vitest';
import {
  checkProof,
  encodeProof,
  proveLedger,
} from '../../src/proof/ledger-proof.ts';
import { openLog, storedFiles } from '../../src/proof/log.ts';
import { openCheckpoint } from '../../src/proof/checkpoint.ts';
import {
  readCheckpointNote,
  readLastStatement,
  readLog,
  readRecord,
  readRecordEntries,
} from '../../src/proof/proof-files.ts';
import { generateKey } from '../../src/proof/signed-note.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import {
  addIdleLedgers,
  forgetProofs,
  removeCoverageOf,
} from '../support/mirror-arrange.ts';
import { countStatements } from '../support/measure/count-statements.ts';
import { NEVER_ABORTED } from '../support/samples.ts';
import { PARTY_A, PARTY_B, temporaryStore } from '../warehouse/published.ts';
import { filesOf, proofWorld } from './proof-world.ts';

const world = await proofWorld();

describe('writeNight', () => {
  test('says of each ledger how many rows it has in each month', async () => {
    await world.addDay(PARTY_A, '2023-04-30', 2);
    await world.addDay(PARTY_A, '2023-05-01', 3);
    await world.addDay(PARTY_B, '2023-05-02', 1);
    expect(await world.night('0')).toMatchObject({ night: 0, changed: 2 });

    const files = filesOf(world);
    const last = await readLastStatement(files);
    if (last === undefined) throw new Error('there is no statement');
    expect(last.statement).toMatchObject({
      mirror: 'mirror.example/test',
      night: 0,
      ledgers: { count: 2, rows: '6', levels: 1 },
    });
    const records = [];
    for await (const entry of readRecordEntries(files, last.statement))
      records.push((await readRecord(files, entry)).record);
    expect(
      records.map(({ party, rows, months }) => [
        party,
        rows,
        months.map(([month, count]) => `${month}: ${count}`),
      ]),
    ).toEqual([
      [PARTY_A, '5', ['2023-04: 2', '2023-05: 3']],
      [PARTY_B, '1', ['2023-05: 1']],
    ]);
  });

  test('writes nothing of ledgers that did not change', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 3);
    await world.addDay(PARTY_B, '2023-05-01', 1);
    await world.night('0');
    const before = await keysOf(world.objects);
    expect(await world.night('1')).toMatchObject({ night: 1, changed: 0 });
    const added = (await keysOf(world.objects)).filter(
      (key) => !before.includes(key),
    );
    expect(added).toEqual([
      'proof/statements/000000001',
      'proof/tile/0/000.p/2',
      'proof/tile/entries/000.p/2',
      'runs/1.json',
    ]);

    await world.addDay(PARTY_A, '2023-05-02', 1);
    expect(await world.night('2')).toMatchObject({ night: 2, changed: 1 });
  });

  test('a night needs as few statements as its changes allow', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 3);
    await world.night('0');
    const ofNight = async (name: string): Promise<readonly string[]> => {
      using counted = countStatements();
      await world.night(name);
      return [...counted.texts.keys()];
    };
    // The log, what may have changed, the network, two lists, and the log's new end.
    const idle = await ofNight('1');
    expect(idle).toHaveLength(6);
    expect(idle.join()).not.toContain('proof_ledgers');
    // And the changed records, the pages, all records, each once.
    await world.addDay(PARTY_A, '2023-05-02', 1);
    expect(await ofNight('2')).toHaveLength(9);
  });

  test('a kill while the records are read anew leaves none of them trusted', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 3);
    await world.addDay(PARTY_B, '2023-05-01', 1);
    await world.night('0');
    await world.store.forgetRecords();
    expect(await world.night('1')).toMatchObject({ night: 1, changed: 0 });
    const last = await readLastStatement(filesOf(world));
    expect(last?.statement.ledgers).toMatchObject({ count: 2, rows: '4' });
  });

  test('proves ledgers without entries, whatever characters their ids have', async () => {
    const ids = [
      'Ünïcode "id"',
      'a\\b',
      'a,b',
      'tab\there',
      '\u{1F98A}',
      '\uFF5E',
    ];
    await addIdleLedgers(world.database.pool, ids);
    await world.night('0');
    const { key } = world.deps();
    for (const party of ids) {
      const proof = await proveLedger(filesOf(world), { party });
      const { record } = checkProof(encodeProof(proof), key);
      expect(record).toMatchObject({ party, rows: '0', months: [] });
    }
  });

  test('forgets a ledger that is no longer held', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 3);
    await world.addDay(PARTY_B, '2023-05-01', 1);
    await world.night('0');
    const { pool } = world.database;
    await removeCoverageOf(pool, PARTY_B);
    await world.night('1');
    const last = await readLastStatement(filesOf(world));
    expect(last?.statement.ledgers).toMatchObject({ count: 1, rows: '3' });
    const proof = await proveLedger(filesOf(world), {
      party: PARTY_B,
      at: '0',
    });
    expect(JSON.parse(proof.record)).toMatchObject({ rows: '1' });
  });

  test('names the ranges that a ledger is covered in if it lies behind', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 1);
    await world.night('0');
    const proof = await proveLedger(filesOf(world), { party: 'aa' });
    expect(JSON.parse(proof.record)).toMatchObject({
      covered: [['2023-05-01T00:00:00.000000Z', '2023-05-02T00:00:00.000000Z']],
    });
  });

  test('of the same night twice adds nothing', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 1);
    const once = await world.night('0');
    const again = await world.night('0');
    expect(again).toEqual({ ...once, changed: 0 });
  });

  test('a kill at any write leaves a log that the next delivery ends', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 3);
    await world.night('0');
    await world.addDay(PARTY_A, '2023-05-02', 1);
    await world.addDay(PARTY_B, '2023-05-02', 1);
    let kills = 0;
    for (;;) {
      const objects = dyingStore(world.objects, kills);
      const isKilled = await world.night('1', { objects }).then(
        () => false,
        (error: unknown) => {
          if (error !== KILLED) throw error;
          return true;
        },
      );
      if (!isKilled) break;
      kills += 1;
      await checkLog();
    }
    expect(kills).toBeGreaterThan(3);
    expect((await checkLog()).size).toBe(2);
    const last = await readLastStatement(filesOf(world));
    expect(last?.statement.ledgers).toMatchObject({ count: 2, rows: '5' });
  });

  test('a night behind a kill goes on, and both statements are in the log', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 3);
    await world.night('0');
    // The statement is written, and neither its tiles nor its checkpoint.
    const writes = await countWrites('1', 'proof/statements/');
    const objects = dyingStore(world.objects, writes);
    await expect(world.night('1', { objects })).rejects.toBe(KILLED);
    expect((await checkLog()).size).toBe(1);
    await world.night('2');
    expect((await checkLog()).size).toBe(3);
  });

  test('a database that was lost goes on with the same log, and writes no record again', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 3);
    await world.addDay(PARTY_B, '2023-05-01', 1);
    await world.night('0');
    await forgetProofs(world.database.pool);
    expect(await world.night('1')).toMatchObject({ night: 1, changed: 0 });
    expect((await checkLog()).size).toBe(2);
  });

  test('256 nights fill a tile, and the log goes on behind it', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 1);
    for (let night = 0; night < 258; night += 1)
      await world.night(String(night));
    expect((await checkLog()).size).toBe(258);
    const proof = await proveLedger(filesOf(world), {
      party: PARTY_A,
      at: '100',
    });
    const { key } = world.deps();
    expect(checkProof(encodeProof(proof), key).statement.night).toBe(100);
  });
});

describe('openLog', () => {
  test('refuses a log that has fewer nights than this database has written', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 1);
    await world.night('0');
    const older = await copyOf(world.objects);
    await world.night('1');
    await expect(world.night('2', { objects: older })).rejects.toMatchObject({
      code: 'PROOF_LOG_FORKED',
    });
  });

  test('refuses a log that was continued otherwise', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 1);
    await world.night('0');
    const copy = await copyOf(world.objects);
    const { key } = world.deps();
    const cloned = await openLog(
      storedFiles(copy, NEVER_ABORTED),
      key,
      undefined,
    );
    expect(cloned.entries).toHaveLength(1);
    await world.night('1');
    const remembered = await world.store.readLog();
    await forgetProofs(world.database.pool);
    await world.night('7', { objects: copy });
    await world.night('8', { objects: copy });
    const open = openLog(storedFiles(copy, NEVER_ABORTED), key, remembered);
    await expect(open).rejects.toMatchObject({ code: 'PROOF_LOG_FORKED' });
  });

  test('refuses the log of another key, and writes nothing', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 1);
    await world.night('0');
    const before = await keysOf(world.objects);
    const another = { key: generateKey('mirror.example/test') };
    await expect(world.night('1', another)).rejects.toMatchObject({
      code: 'PROOF_SIGNATURE_INVALID',
    });
    const after = await keysOf(world.objects);
    expect(after.filter((key) => key.startsWith('proof/'))).toEqual(
      before.filter((key) => key.startsWith('proof/')),
    );
  });
});

describe('proveLedger', () => {
  test('proves a ledger of any night, and the proof names that night', async () => {
    const { key } = world.deps();
    for (const day of [1, 2, 3]) {
      await world.addDay(PARTY_A, `2023-05-0${day}`, day);
      await world.night(String(day - 1));
    }
    const counts = [];
    for (const at of ['0', '2023-06-02', '2023-06-02T02:00:00Z', undefined]) {
      const proof = await proveLedger(filesOf(world), { party: 'aaaa', at });
      const { statement, record } = checkProof(encodeProof(proof), key);
      counts.push([statement.night, record.rows]);
    }
    expect(counts).toEqual([
      [0, '1'],
      [1, '3'],
      [1, '3'],
      [2, '6'],
    ]);
  });

  test.each([
    [{ party: 'cc' }, 'no ledger'],
    [{ party: '' }, 'several ledgers'],
    [{ party: PARTY_A, asset: 'c0' }, 'no ledger'],
    [{ party: PARTY_A, at: '1' }, 'no night 1'],
    [{ party: PARTY_A, at: '2023-05-31' }, 'no night ended'],
    [{ party: PARTY_A, at: 'someday' }, 'names no night'],
  ])('refuses %j: %s', async (question, state) => {
    await world.addDay(PARTY_A, '2023-05-01', 1);
    await world.addDay(PARTY_B, '2023-05-01', 1);
    await world.night('0');
    await expect(proveLedger(filesOf(world), question)).rejects.toMatchObject({
      code: 'PROOF_NOT_FOUND',
      message: expect.stringContaining(state) as string,
    });
  });
});

describe('checkProof', () => {
  test('refuses a file that was cut, wherever that was', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 2);
    await world.night('0');
    const { key } = world.deps();
    const proof = await proveLedger(filesOf(world), { party: PARTY_A });
    const text = encodeProof(proof);
    for (const length of [0, 1, 100, text.length >> 1, text.length - 3])
      expect(() => checkProof(text.slice(0, length), key)).toThrow(
        expect.objectContaining({ code: 'PROOF_INVALID' }),
      );
  });

  test('names an unknown or wrong field of a file, in one line', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 2);
    await world.night('0');
    const { key } = world.deps();
    const proof = await proveLedger(filesOf(world), { party: PARTY_A });
    const messageOf = (change: object): string => {
      try {
        checkProof(JSON.stringify({ ...proof, ...change }), key);
        return 'it holds';
      } catch (error) {
        return errorLine(error);
      }
    };
    expect(messageOf({ note: 'mine' })).toContain('"note"');
    expect(messageOf({ recordIndex: 1e30 })).toContain('recordIndex');
    expect(messageOf({ recordPath: ['x'] })).toContain('recordPath.0');
  });

  test('a night in the future is the last one, and the proof says which', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 2);
    await world.night('0');
    const { key } = world.deps();
    const question = { party: PARTY_A, at: '2999-01-01' };
    const proof = await proveLedger(filesOf(world), question);
    expect(checkProof(encodeProof(proof), key).statement.night).toBe(0);
  });

  test('refuses a proof in which any one value is another', async () => {
    await world.addDay(PARTY_A, '2023-05-01', 2);
    await world.addDay(PARTY_B, '2023-05-01', 1);
    await world.night('0');
    await world.night('1');
    const { key } = world.deps();
    const files = filesOf(world);
    const proof = await proveLedger(files, { party: PARTY_A, at: '0' });
    const other = await proveLedger(files, { party: PARTY_B, at: '1' });
    const wrong = [
      { record: proof.record.replace('"rows":"2"', '"rows":"3"') },
      { record: other.record },
      { recordIndex: 1 },
      { recordPath: [] },
      { recordPath: other.recordPath },
      { statement: proof.statement.replace('complete', 'failed') },
      { statement: other.statement },
      { statementPath: [] },
      { statementPath: other.statementPath },
      { checkpoint: proof.checkpoint.replace('\n2\n', '\n3\n') },
      { format: 'another' },
    ];
    for (const change of wrong) {
      const text = JSON.stringify({ ...proof, ...change });
      expect(() => checkProof(text, key)).toThrow(
        expect.objectContaining({
          code: expect.stringMatching(
            /^PROOF_(?:INVALID|SIGNATURE_INVALID)$/,
          ) as string,
        }),
      );
    }
    expect(() => checkProof(encodeProof(proof), generateKey(key.name))).toThrow(
      expect.objectContaining({ code: 'PROOF_SIGNATURE_INVALID' }),
    );
    expect(checkProof(encodeProof(proof), key).record.rows).toBe('2');
  });
});

const KILLED = new Error('killed');

/** A store whose writer is killed behind so many writes. */
function dyingStore(objects: ObjectStore, writes: number): ObjectStore {
  let left = writes;
  const mutations = [
    'publishFile',
    'publishBytes',
    'putIfAbsent',
    'replaceBytes',
  ];
  return new Proxy(objects, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return (...given: unknown[]) => {
        if (mutations.includes(String(name))) {
          if (left === 0) return Promise.reject(KILLED);
          left -= 1;
        }
        return Reflect.apply(value, target, given) as unknown;
      };
    },
  });
}

/** How many writes a night needs up to its first one below a prefix. */
async function countWrites(name: string, prefix: string): Promise<number> {
  for (let writes = 0; ; writes += 1) {
    const copy = await copyOf(world.objects);
    const remembered = await world.store.readLog();
    await world
      .night(name, { objects: dyingStore(copy, writes) })
      .catch(() => undefined);
    await forgetProofs(world.database.pool);
    if (remembered !== undefined) await world.store.writeLog(remembered);
    const keys = await keysOf(copy);
    const before = await keysOf(world.objects);
    const isThere = keys.some(
      (key) => key.startsWith(prefix) && !before.includes(key),
    );
    if (isThere) return writes;
  }
}

async function copyOf(objects: ObjectStore): Promise<ObjectStore> {
  const copy = await temporaryStore();
  for (const key of await keysOf(objects)) {
    const chunks: Buffer[] = [];
    for await (const chunk of await objects.read(key, NEVER_ABORTED))
      chunks.push(chunk as Buffer);
    await copy.replaceBytes(key, Buffer.concat(chunks), NEVER_ABORTED);
  }
  return copy;
}

async function keysOf(objects: ObjectStore): Promise<string[]> {
  const keys: string[] = [];
  for await (const { key } of objects.list('', NEVER_ABORTED)) keys.push(key);
  return keys;
}

/** The published log holds: its signature, its entries, its tiles. */
async function checkLog() {
  const files = filesOf(world);
  const note = await readCheckpointNote(files);
  if (note === undefined) throw new Error('there is no checkpoint');
  const checkpoint = openCheckpoint(note, world.deps().key);
  await readLog(files, checkpoint);
  return checkpoint;
}
