/**
 * The bytes of statements, pages and records: what was signed once must have the same
 * bytes when any later release writes it.
 */
import { createHash } from 'node:crypto';
import { buffer } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { rootHash } from '../../src/proof/merkle.ts';
import {
  readLastStatement,
  readRecord,
  readRecordEntries,
} from '../../src/proof/proof-files.ts';
import {
  addCheckpoints,
  addIdleLedgers,
  addParties,
  removeCoverageOf,
} from '../support/mirror-arrange.ts';
import { NEVER_ABORTED } from '../support/samples.ts';
import { PARTY_A, PARTY_B } from '../warehouse/published.ts';
import { filesOf, proofWorld } from './proof-world.ts';

const world = await proofWorld();

/** SHA-256 of the files that each night adds, in the order of the nights. */
const WANTED: Readonly<Record<string, string>> = {
  'proof/ledgers/0':
    '3959b6face6f5400b1d7d7c9e437e307b89f116603e3931a2631f78a61621e6f',
  'proof/ledgers/2':
    'c2434d3d11b5e02c3f31bff51b7ea2bd23a72b2652d794dd545ccccf036e332b',
  'proof/ledgers/4':
    'd4a10955be23302431f4d739d9225ed286a2cd7aa6e61a14fbe00cf27ab9dbde',
  'proof/pages/0':
    '6519016ee65e184b2ff6feacbfa6b71caeaa676798bd56401dc235dfd56813a6',
  'proof/pages/2':
    '82ba3d4aba58d5873b09d9cdc05be165043159eb19404d0faf4208c9aa1037c8',
  'proof/pages/3':
    '7ea291b26514ff984cd97b2b3db02820bd964d46c98928feb745398a24798542',
  'proof/pages/4':
    '8d0c2995782f707f8190e27c6beb24c58711a7e63c7b03de48c2abc33ab4dc93',
  'proof/statements/000000000':
    'ae1971d592316c111c928856a1a67753d9c082e567930b3b3f67a1a421ca05ea',
  'proof/statements/000000001':
    'ade5230b457c79c2593787aff467561adca17dc667406ab014bf5fff2c9d4c1d',
  'proof/statements/000000002':
    'daebe43fb5f14570d20cb42233ab9e5da4c81fbf6c69be5131d050dd3311968f',
  'proof/statements/000000003':
    '84c6c2df7a731bd0bd19aa436f80c66d450f159022d88f140b886cb232ee51a8',
  'proof/statements/000000004':
    'b12e45b789369393e8b92419bd2ef911bf58d3e850c7a2670294667dc894d789',
};

test('the files of five nights have the bytes that earlier releases wrote', async () => {
  const { pool } = world.database;
  const idle = Array.from(
    { length: 700 },
    (_, index) => `idle ${index} Ünï\\"`,
  );
  await addParties(pool, [PARTY_A, PARTY_B, 'network'], 1);
  await addCheckpoints(
    pool,
    [1, 2].map((height) => ({
      epoch: 1,
      at_block: height,
      hash: `hash ${height}`,
      block_hash: `block ${height}`,
      first_seen_at: '2023-05-02T00:00:00Z',
    })),
  );
  await addIdleLedgers(pool, idle);
  await world.addDay(PARTY_A, '2023-04-30', 2);
  await world.addDay(PARTY_B, '2023-05-01', 3);
  const changed: number[] = [];
  const night = async (name: string): Promise<void> => {
    changed.push((await world.night(name)).changed);
    await requireWholeTree();
  };
  await night('0');
  await night('1');
  await world.addDay(PARTY_A, '2023-05-01', 4);
  await world.addDay('\u{1F98A}', '2023-05-01', 1);
  await night('2');
  await removeCoverageOf(pool, PARTY_B);
  await removeCoverageOf(pool, 'idle 300 Ünï\\"');
  await night('3');
  await world.addDay(PARTY_A, '2023-05-02', 1);
  await night('4');
  expect(changed).toEqual([702, 0, 2, 0, 1]);
  expect(await sumsOfFiles()).toEqual(WANTED);
});

/** Checks the last statement's figures against the records themselves. */
async function requireWholeTree(): Promise<void> {
  const files = filesOf(world);
  const last = await readLastStatement(files);
  if (last === undefined) throw new Error('there is no statement');
  const { ledgers } = last.statement;
  const leaves: Buffer[] = [];
  let rows = 0n;
  for await (const entry of readRecordEntries(files, last.statement)) {
    leaves.push(Buffer.from(entry[2], 'hex'));
    rows += BigInt((await readRecord(files, entry)).record.rows);
  }
  expect(ledgers).toMatchObject({
    count: leaves.length,
    rows: String(rows),
    root: rootHash(leaves).toString('hex'),
  });
}

async function sumsOfFiles(): Promise<Readonly<Record<string, string>>> {
  const sums: Record<string, string> = {};
  for (const folder of ['ledgers', 'pages', 'statements']) {
    for await (const { key } of world.objects.list(
      `proof/${folder}/`,
      NEVER_ABORTED,
    )) {
      const bytes = await buffer(await world.objects.read(key, NEVER_ABORTED));
      const text = withoutPlaces(bytes.toString('utf8'));
      const sum = createHash('sha256').update(text).digest('hex');
      sums[key.replace(/-[0-9a-f]{8}$/, '')] = sum;
    }
  }
  return sums;
}

/**
 * A location has a random part, and its offset depends on the order in which Postgres
 * yields ledgers. Neither is covered by a hash, except as a part of the statement.
 */
function withoutPlaces(text: string): string {
  return text
    .replaceAll(/,"\d+-[0-9a-f]{8}",\d+,\d+\]/g, ']')
    .split('\n')
    .toSorted()
    .join('\n');
}
