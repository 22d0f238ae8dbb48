/**
 * Compares a mirror with the network of the sandbox it was made from: every row, in the
 * source's order.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync, zstdDecompressSync } from 'node:zlib';
import type { Pool } from 'pg';
import { expect } from 'vitest';
import { hashRow, RowDigest } from '../../src/ledger/digest.ts';
import type { Truth } from '../support/sandbox-truth.ts';
import { filesBelow } from './mirror-home.ts';
import {
  currentSegments,
  heldCheckpoints,
  knownParties,
  listedParties,
  loadedRowsByParty,
  publishedSegments,
} from '../support/mirror-state.ts';

export interface LedgerSum {
  readonly partyId: string;
  readonly entries: number;
  readonly digest: string;
}

/**
 * Both lists: all rows, none besides, in the source's order, repeated checkpoints
 * counted.
 */
export async function expectLists(pool: Pool, network: Truth): Promise<void> {
  const truth = [...network.parties()].map(({ id }) => id);
  expect(await listedParties(pool)).toEqual(truth);
  expect(new Set(await knownParties(pool))).toEqual(
    new Set([...truth, 'network']),
  );
  expect(await heldCheckpoints(pool)).toEqual(checkpointLines(network));
}

/**
 * One line for each distinct checkpoint with how often it is listed; ties by their hash.
 */
function checkpointLines(network: Truth): string[] {
  const copies = new Map<
    string,
    { height: number; text: string; copies: number }
  >();
  for (const { atBlock, hash, blockHash } of network.checkpoints()) {
    const text = `${atBlock} ${hash} ${blockHash}`;
    const found = copies.get(text) ?? { height: atBlock, text, copies: 0 };
    copies.set(text, { ...found, copies: found.copies + 1 });
  }
  return [...copies.values()]
    .toSorted((a, b) => {
      if (a.height !== b.height) return a.height < b.height ? -1 : 1;
      return a.text < b.text ? -1 : 1;
    })
    .map(({ text, copies: times }) => `${text} ${times}`);
}

/**
 * Every party's ledger in the objects and in the warehouse: the network' rows, each as
 * often.
 */
export async function expectLedgers(
  pool: Pool,
  network: Truth,
  objectsDir: string,
): Promise<void> {
  const truth: LedgerSum[] = [...network.parties()].map(({ id }) => {
    const { entries, digest } = network.party(id);
    return { partyId: id, entries, digest };
  });
  expect(truth.some(({ entries }) => entries > 0)).toBe(true);
  const kept = await Promise.all(
    truth.map(({ partyId }) => objectSum(pool, partyId, objectsDir)),
  );
  expect(kept).toEqual(truth);
  const counted = await loadedRowsByParty(pool);
  expect(truth.map(({ partyId }) => counted.get(partyId) ?? 0)).toEqual(
    truth.map(({ entries }) => entries),
  );
}

/** What the current segments of a party hold, read from the files themselves. */
async function objectSum(
  pool: Pool,
  partyId: string,
  objectsDir: string,
): Promise<LedgerSum> {
  const rows = (await currentSegments(pool)).filter(
    (segment) => segment.partyId === partyId,
  );
  const sum = new RowDigest();
  for (const { objectKey: key } of rows) {
    for (const line of csvRows(
      unpack(key, await readFile(join(objectsDir, key))),
    )) {
      sum.add(hashRow(line, 0, line.length));
    }
  }
  return { partyId, entries: sum.rows, digest: sum.hex() };
}

/** Count and digest of a whole CSV with one header. */
export function csvSum(csv: string): Omit<LedgerSum, 'partyId'> {
  const sum = new RowDigest();
  for (const line of csvRows(Buffer.from(csv)))
    sum.add(hashRow(line, 0, line.length));
  return { entries: sum.rows, digest: sum.hex() };
}

function csvRows(csv: Buffer): Buffer[] {
  const [header, ...lines] = csv.toString('utf8').split('\n');
  expect(header).toMatch(/^vega_time,/);
  expect(lines.pop()).toBe('');
  return lines.map((line) => Buffer.from(line));
}

function unpack(key: string, stored: Buffer): Buffer {
  if (key.endsWith('.zst')) return zstdDecompressSync(stored);
  return key.endsWith('.gz') ? gunzipSync(stored) : stored;
}

/**
 * Objects that no manifest row knows, and files that are neither object nor manifest nor
 * lake.
 */
export async function strayObjects(
  pool: Pool,
  objectsDir: string,
): Promise<string[]> {
  const known = new Set(
    (await publishedSegments(pool)).map(({ objectKey }) => objectKey),
  );
  const stray: string[] = [];
  for (const path of await filesBelow(join(objectsDir, 'ledger'))) {
    const key = path.slice(objectsDir.length + 1);
    if (!known.has(key) && !known.has(key.replace(/\.manifest\.json$/, '')))
      stray.push(key);
  }
  return stray;
}
