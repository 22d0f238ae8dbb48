/**
 * Makes a ledger for the benchmarks of load and lake, published as exports would publish
 * it, but without a source.
 */
import { createHash } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { zstdCompressSync } from 'node:zlib';
import type { Pool } from 'pg';
import { parseInstant } from '../../src/time/time.ts';
import { hashRow, RowDigest } from '../../src/ledger/digest.ts';
import { segmentKey } from '../../src/ledger/object-keys.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';

const HEADER =
  'vega_time,quantity,effect,transfer_type,asset_id,account_from_market_id,account_from_party_id,account_from_account_type,account_from_balance,account_to_market_id,account_to_party_id,account_to_account_type,account_to_balance';
const TYPES = [
  'MTM_LOSS',
  'MARGIN_LOW',
  'MAKER_FEE_PAY',
  'INFRASTRUCTURE_FEE_PAY',
  'WITHDRAW',
];
const START_MS = Date.parse('2023-05-01T00:00:00Z');
/** The rows are spread over three months. */
const SPAN_MS = 92 * 86_400_000;

export const PARTY = 'aa'.repeat(32);

function id(kind: string, number: number): string {
  return createHash('sha256').update(`${kind} ${number}`).digest('hex');
}

const ASSETS = [0, 1, 2].map((number) => id('asset', number));
const MARKETS = [0, 1, 2, 3, 4].map((number) => id('market', number));
const OTHERS = Array.from({ length: 500 }, (_, number) => id('party', number));

/**
 * Writes a row in the form of releases from 0.73 on. Half of the rows are sent, half are
 * received.
 */
function line(number: number, count: number): string {
  const at = new Date(
    START_MS + Math.floor((number * SPAN_MS) / count),
  ).toISOString();
  const time = `${at.slice(0, 10)} ${at.slice(11, 19)}.${String(number % 1_000_000).padStart(6, '0')}+00`;
  const quantity = (number * 7919) % 100_000_007;
  const other = OTHERS[number % OTHERS.length] ?? '';
  const [from, to] = number % 2 === 0 ? [PARTY, other] : [other, PARTY];
  const effect = number % 2 === 0 ? -quantity : quantity;
  return (
    `${time},${quantity},${effect},TRANSFER_TYPE_${TYPES[number % TYPES.length]},${ASSETS[number % 3]},` +
    `${MARKETS[number % 5]},${from},MARGIN,${1_000_000_007 * number},"",${to},GENERAL,${10n ** 20n + BigInt(number)}`
  );
}

/**
 * Publishes `rows` entries as `segments` objects.
 * @returns their keys and their size unpacked
 */
export async function publishLedger(
  pool: Pool,
  objects: ObjectStore,
  rows: number,
  segments: number,
): Promise<{ readonly keys: readonly string[]; readonly bytes: number }> {
  const keys: string[] = [];
  let bytes = 0;
  for (let segment = 0; segment < segments; segment += 1) {
    const size = Math.ceil(rows / segments);
    const first = segment * size;
    const last = Math.min(rows, first + size);
    const lines: string[] = [];
    const digest = new RowDigest();
    for (let number = first; number < last; number += 1) {
      const text = line(number, rows);
      lines.push(text);
      digest.add(hashRow(Buffer.from(text), 0, text.length));
    }
    const plain = Buffer.from(`${HEADER}\n${lines.join('\n')}\n`);
    bytes += plain.length;
    keys.push(
      await publishSegment(pool, objects, {
        plain,
        digest,
        first,
        last,
        count: rows,
      }),
    );
  }
  return { keys, bytes };
}

interface Segment {
  readonly plain: Buffer;
  readonly digest: RowDigest;
  readonly first: number;
  readonly last: number;
  readonly count: number;
}

async function publishSegment(
  pool: Pool,
  objects: ObjectStore,
  segment: Segment,
): Promise<string> {
  const { plain, digest } = segment;
  const stored = zstdCompressSync(plain);
  const sha256 = sha(plain);
  const from = border(segment.first, segment.count);
  const to = border(segment.last, segment.count);
  const key = segmentKey({
    partyId: PARTY,
    from: parseInstant(from) ?? 0n,
    to: parseInstant(to) ?? 0n,
    sha256,
    compression: 'zstd',
  });
  const path = await objects.spoolPath(`bench-${segment.first}`);
  await writeFile(path, stored);
  const facts = { bytes: BigInt(stored.length), sha256: sha(stored) };
  await objects.publishFile(key, path, facts, new AbortController().signal);
  await rm(path);
  await pool.query(
    `with segment as (
       insert into mirror.segments (party_id, from_time, to_time, object_key, rows, bytes, sha256,
         object_bytes, object_sha256, digest, row_form, columns)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'bench', $11) returning *)
     insert into mirror.coverage (party_id, from_time, to_time, sides, segment_id)
       select party_id, from_time, to_time, 'both', segment_id from segment`,
    [
      PARTY,
      from,
      to,
      key,
      digest.rows,
      plain.length,
      sha256,
      stored.length,
      facts.sha256,
      digest.hex(),
      HEADER.split(','),
    ],
  );
  return key;
}

/**
 * Returns the second that contains row `number`, because segments begin and end at whole
 * seconds.
 */
function border(number: number, count: number): string {
  const ms = START_MS + Math.floor((number * SPAN_MS) / count);
  return new Date(
    Math.floor(ms / 1000) * 1000 + (number === count ? 1000 : 0),
  ).toISOString();
}

function sha(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
