/**
 * Records what manifests do not contain: empty ranges, which have no object, and facts
 * about a segment that were learned after its manifest was written. With this record, a
 * lost database can be rebuilt with all known ranges. It is one object in the store,
 * with one line of JSON per range.
 */
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { id, instant, parseJson, partyId } from './json-fields.ts';
import { tailSum } from './tail-sum.ts';

export const RANGES_KEY = 'ranges.jsonl.zst';
/**
 * Maximum number of characters in a line. Most lines have a few hundred, and the sizes
 * of party ids and columns are limited.
 */
const LINE_CHARS_MAX = 64 * 1024;

/** The record's first line. */
const headSchema = z.object({
  version: z.literal(1),
  /** The id of the warehouse that wrote the record. */
  warehouseId: z.uuid(),
  writtenAt: z.string(),
});
export type RangesHead = Readonly<z.output<typeof headSchema>>;

const rangeSchema = z.object({
  partyId,
  /** The asset of the range; null stands for all assets. */
  assetId: id.nullable(),
  from: instant,
  /** The end of the range, exclusive. */
  to: instant,
  sides: z.enum(['from', 'both', 'unknown']),
  /** The segment that this line corrects; absent if the range is empty. */
  objectKey: z.string().optional(),
  tail: tailSum.optional(),
  epoch: z.int().optional(),
  /** The run that last requested the range. */
  runId: z.uuid().optional(),
  checkedAt: instant,
});
/** One line of the record: a closed range. */
export type RangeRecord = Readonly<z.output<typeof rangeSchema>>;

export function encodeHead(head: RangesHead): string {
  return JSON.stringify(head);
}

/**
 * Parses the first line.
 * @throws PermanentError `RANGES_INVALID`
 */
export function decodeHead(line: string): RangesHead {
  return decode(headSchema, line);
}

/**
 * Parses the line of a range.
 * @throws PermanentError `RANGES_INVALID`
 */
export function decodeRange(line: string): RangeRecord {
  return decode(rangeSchema, line);
}

function decode<Shape extends z.ZodType>(
  shape: Shape,
  line: string,
): z.output<Shape> {
  const isLine = line.length <= LINE_CHARS_MAX;
  const parsed = shape.safeParse(isLine ? parseJson(line) : undefined);
  if (parsed.success) return parsed.data;
  throw rangesInvalid(
    'it contains a line that this version does not write',
    parsed.error,
  );
}

/**
 * Splits text into lines. Rejects a line that is too long for a record, and a final
 * line without a line break.
 */
export async function* linesOf(
  chunks: AsyncIterable<Buffer>,
): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let partial = '';
  for await (const chunk of chunks) {
    const lines = (partial + decoder.decode(chunk, { stream: true })).split(
      '\n',
    );
    partial = lines.pop() ?? '';
    if (partial.length > LINE_CHARS_MAX)
      throw rangesInvalid('a line is too long');
    yield* lines;
  }
  if (partial !== '') throw rangesInvalid('its last line is incomplete');
}

export function rangesInvalid(state: string, cause?: unknown): PermanentError {
  return new PermanentError(
    `Cannot read ${RANGES_KEY}: ${state}; the ranges that it named will ` +
      'be requested again',
    { code: 'RANGES_INVALID', meta: { key: RANGES_KEY }, cause },
  );
}
