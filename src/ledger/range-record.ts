/**
 * What no manifest says of ledgers: ranges without entries, which have no object, and
 * what was learned of a segment after its manifest was written. It lies in the store as
 * one object, a line of JSON for each range, so that a lost database comes back with
 * everything that was known.
 */
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { id, instant, parseJson, partyId } from './json-fields.ts';
import { tailSum } from './tail-sum.ts';

export const RANGES_KEY = 'ranges.jsonl.zst';
/** A line has some hundred bytes; party ids and columns are bounded. */
const LINE_CHARS_MAX = 64 * 1024;

/** The first line. */
const headSchema = z.object({
  version: z.literal(1),
  /** The lineage of the mirror that wrote it. */
  warehouseId: z.uuid(),
  writtenAt: z.string(),
});
export type RangesHead = Readonly<z.output<typeof headSchema>>;

const rangeSchema = z.object({
  partyId,
  /** null: every asset. */
  assetId: id.nullable(),
  from: instant,
  /** Exclusive. */
  to: instant,
  sides: z.enum(['from', 'both', 'unknown']),
  /** Absent: the range has no entries. Otherwise the segment that the line corrects. */
  objectKey: z.string().optional(),
  tail: tailSum.optional(),
  epoch: z.int().optional(),
  /** The run that requested it last. */
  runId: z.uuid().optional(),
  checkedAt: instant,
});
/** A closed range. */
export type RangeRecord = Readonly<z.output<typeof rangeSchema>>;

export function encodeHead(head: RangesHead): string {
  return JSON.stringify(head);
}

/** @throws PermanentError `RANGES_INVALID` */
export function decodeHead(line: string): RangesHead {
  return decode(headSchema, line);
}

/** @throws PermanentError `RANGES_INVALID` */
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
  throw rangesInvalid('a line is not what this version writes', parsed.error);
}

/** Splits text into lines, and refuses one that no record can have. */
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
  if (partial !== '') throw rangesInvalid('its last line is not whole');
}

export function rangesInvalid(state: string, cause?: unknown): PermanentError {
  return new PermanentError(
    `Cannot read ${RANGES_KEY}: ${state}; what it named is asked for again`,
    { code: 'RANGES_INVALID', meta: { key: RANGES_KEY }, cause },
  );
}
