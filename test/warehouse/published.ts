/**
 * Segments as an export leaves them, made without a source: object, manifest row and
 * coverage.
 */
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { onTestFinished } from 'vitest';
import type { Pool } from 'pg';
import { nowMicros, parseInstant } from '../../src/time/time.ts';
import { hashRow, RowDigest } from '../../src/ledger/digest.ts';
import { encodeManifest } from '../../src/ledger/manifest.ts';
import {
  type Compression,
  manifestKey,
  segmentKey,
} from '../../src/ledger/object-keys.ts';
import { openFileStore } from '../../src/storage/file-store.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import {
  HEADER_12,
  type EntryLine,
  writeRow12,
  writeRow13,
} from '../ledger/csv.ts';

export const PARTY_A = 'aa'.repeat(32);
export const PARTY_B = 'bb'.repeat(32);
export const ASSET = 'c0'.repeat(32);
export const MARKET = 'dd'.repeat(32);

/**
 * What an entry says; `row12` and `row13` write it as the two families of releases do.
 */
export type Entry = Partial<EntryLine> & Pick<EntryLine, 'time'>;

const FILLED = {
  quantity: '1000000',
  type: 'MARGIN_HIGH',
  from: PARTY_A,
  to: PARTY_A,
  asset: ASSET,
  market: MARKET,
};

export function row12(entry: Entry): string {
  return writeRow12({ ...FILLED, ...entry });
}

export function row13(entry: Entry, exportedFor: string): string {
  const { from, to, quantity } = { ...FILLED, ...entry };
  const sign = to === exportedFor ? '' : '-';
  const effect = from === to ? '0' : `${sign}${quantity}`;
  return writeRow13({ ...FILLED, ...entry }, effect);
}

export async function temporaryStore(): Promise<ObjectStore> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-load-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return openFileStore(folder);
}

export const WAREHOUSE_ID = '0199a000-0000-7000-8000-000000000001';
const NEVER = new AbortController().signal;
let seq = 0n;

export interface Publication {
  readonly party: string;
  readonly from: string;
  readonly to: string;
  readonly header?: string;
  readonly rows: readonly string[];
  readonly open?: boolean;
  readonly compression?: Compression;
  readonly lineEnd?: '\r\n';
}

/**
 * Publishes a segment and supersedes what it overlaps, as the export's last transaction
 * does.
 */
export async function publish(
  pool: Pick<Pool, 'query'>,
  objects: ObjectStore,
  segment: Publication,
): Promise<{ segmentId: bigint; key: string }> {
  const header = segment.header ?? HEADER_12;
  const plain = Buffer.from(
    [header, ...segment.rows, ''].join(segment.lineEnd ?? '\n'),
  );
  const digest = new RowDigest();
  for (const row of segment.rows) {
    const bytes = Buffer.from(row.replace(/\r$/, ''));
    digest.add(hashRow(bytes, 0, bytes.length));
  }
  const compression = segment.compression ?? 'zstd';
  const sha256 = sha(plain);
  const stored = compress(plain, compression);
  const key = segmentKey({
    partyId: segment.party,
    from: instant(segment.from),
    to: instant(segment.to),
    sha256,
    compression,
  });
  const path = await objects.spoolPath(`test-${sha256.slice(0, 8)}`);
  await writeFile(path, stored);
  await objects.publishFile(
    key,
    path,
    { bytes: BigInt(stored.length), sha256: sha(stored) },
    NEVER,
  );
  await rm(path);
  seq += 1n;
  const manifest = encodeManifest({
    version: 1,
    objectKey: key,
    warehouseId: WAREHOUSE_ID,
    seq,
    source: 'http://localhost:3008/',
    partyId: segment.party,
    assetId: null,
    from: instant(segment.from),
    to: instant(segment.to),
    open: segment.open ?? false,
    sides: header.includes('effect') ? 'both' : 'from',
    columns: header.split(','),
    rows: BigInt(segment.rows.length),
    bytes: BigInt(plain.length),
    sha256,
    compression,
    objectBytes: BigInt(stored.length),
    objectSha256: sha(stored),
    digest: digest.hex(),
    rowForm: 'test',
    leftOut: { party: 0n, asset: 0n, range: 0n },
    runId: WAREHOUSE_ID,
    publishedAt: nowMicros(),
  });
  await objects.publishBytes(manifestKey(key), manifest, NEVER);
  await supersede(pool, segment);
  const { rows } = await pool.query<{ segment_id: string }>(
    `with segment as (
       insert into mirror.segments (party_id, from_time, to_time, open, object_key, rows, bytes, sha256,
         object_bytes, object_sha256, digest, row_form, columns)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 'test', $12) returning *)
     insert into mirror.coverage (party_id, from_time, to_time, open, sides, segment_id)
       select party_id, from_time, to_time, open, $13, segment_id from segment returning segment_id`,
    [
      segment.party,
      segment.from,
      segment.to,
      segment.open ?? false,
      key,
      segment.rows.length,
      plain.length,
      sha256,
      stored.length,
      sha(stored),
      digest.hex(),
      header.split(','),
      header.includes('effect') ? 'both' : 'from',
    ],
  );
  return { segmentId: BigInt(rows[0]!.segment_id), key };
}

async function supersede(
  pool: Pick<Pool, 'query'>,
  { party, from, to }: Publication,
): Promise<void> {
  const overlap = 'party_id = $1 and from_time < $3 and to_time > $2';
  await pool.query(`delete from mirror.coverage where ${overlap}`, [
    party,
    from,
    to,
  ]);
  await pool.query(
    `update mirror.segments set status = 'superseded', superseded_at = now() where status = 'current' and ${overlap}`,
    [party, from, to],
  );
}

function instant(text: string): bigint {
  return parseInstant(text)!;
}

function sha(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

function compress(plain: Buffer, compression: Compression): Buffer {
  if (compression === 'none') return plain;
  return compression === 'zstd' ? zstdCompressSync(plain) : gzipSync(plain);
}
