/**
 * What is covered, as it lies in the store beside the objects: ranges without entries, tails, and what was
 * closed as it stood are in no manifest. A record is JSON lines, compressed: a head, then a line a party.
 */
import { z } from 'zod';
import { PermanentError } from '../../core/errors.ts';
import { checkKey } from './object-keys.ts';
import { decimal, hex64, id, instant, parseJson, partyId } from '../json-values.ts';

export const RECORDS_PREFIX = 'coverage/';

const SEQ_DIGITS = 19;
const SHA_CHARACTERS = 12;
const KEY = /^coverage\/([0-9a-f-]{36})\/(\d{19})\.(whole|changes)\.([0-9a-f]{12})\.jsonl\.zst$/;

/** The sum of a range's last rows: what every continuation asks for again, to see that they still are there. */
export const tailSum = z.object({
  /** A whole second; the range's end is the coverage's. */
  from: instant,
  rows: z.int().nonnegative(),
  digest: hex64,
  rowForm: z.string(),
});

const head = z.object({
  version: z.literal(1),
  warehouseId: z.uuid(),
  /** Rises with every publication and record of a warehouse. */
  seq: decimal,
});
export const recordedRange = z.object({
  /** null: every asset. */
  assetId: id.nullable(),
  from: instant,
  /** Exclusive. */
  to: instant,
  open: z.boolean(),
  sides: z.enum(['from', 'both', 'unknown']),
  /** null: nothing lies in the range. */
  objectKey: z.string().nullable(),
  tail: tailSum.nullable(),
  runId: z.uuid().nullable(),
  checkedAt: instant,
});
const party = z.object({ partyId, coverage: z.array(recordedRange) });

export type TailSum = z.output<typeof tailSum>;
export type RecordHead = z.output<typeof head>;
export type RecordedRange = z.output<typeof recordedRange>;
export type RecordedRangeJson = z.input<typeof recordedRange>;
/** All that is covered of a party. */
export type PartyCoverage = z.output<typeof party>;

export interface RecordName {
  readonly warehouseId: string;
  readonly seq: bigint;
  /** Of every party; else only of those whose coverage changed since the record before. */
  readonly isFull: boolean;
  /** The first characters of the SHA-256 of the plain lines, hex. */
  readonly sha256: string;
}

export function recordKey({ warehouseId, seq, isFull, sha256 }: RecordName): string {
  const number = `${seq}`.padStart(SEQ_DIGITS, '0');
  const kind = isFull ? 'whole' : 'changes';
  return checkKey(`${recordsOf(warehouseId)}${number}.${kind}.${sha256.slice(0, SHA_CHARACTERS)}.jsonl.zst`);
}

/** Where the records of one warehouse lie. */
export function recordsOf(warehouseId: string): string {
  return `${RECORDS_PREFIX}${warehouseId}/`;
}

/** @returns undefined for what is not the key of a record */
export function readRecordKey(key: string): RecordName | undefined {
  const [, warehouseId = '', seq = '', kind, sha256 = ''] = KEY.exec(key) ?? [];
  return kind === undefined ? undefined : { warehouseId, seq: BigInt(seq), isFull: kind === 'whole', sha256 };
}

export function encodeHead(value: RecordHead): string {
  return `${JSON.stringify(z.encode(head, value))}\n`;
}

export function encodeParty(value: PartyCoverage): string {
  return `${JSON.stringify(z.encode(party, value))}\n`;
}

/** @throws PermanentError `COVERAGE_RECORD_INVALID` */
export function decodeHead(line: string, key: string): RecordHead {
  return decoded(head, line, key);
}

/** @throws PermanentError `COVERAGE_RECORD_INVALID` */
export function decodeParty(line: string, key: string): PartyCoverage {
  return decoded(party, line, key);
}

function decoded<Schema extends z.ZodType>(schema: Schema, line: string, key: string): z.output<Schema> {
  const parsed = schema.safeParse(parseJson(line));
  if (parsed.success) return parsed.data;
  throw invalidRecord(key, z.prettifyError(parsed.error).split('\n').slice(0, 3).join('; '), parsed.error);
}

export function invalidRecord(key: string, state: string, cause?: unknown): PermanentError {
  return new PermanentError(
    `Cannot use the record of coverage ${key}: ${state}; what it alone knows is asked again`,
    { code: 'COVERAGE_RECORD_INVALID', meta: { key }, ...(cause === undefined ? {} : { cause }) },
  );
}
