/** Rows of a segment as COPY input (text format) in the warehouse's types, with the sums of their values. */
import {
  canonicalText,
  type CanonicalRow,
  effectOn,
  ENTRY_COLUMNS,
  isPartyColumn,
  monthOf,
  openRowReader,
} from '../ledger/canonical.ts';
import { hashText, RowDigest } from '../ledger/digest.ts';
import { PermanentError } from '../core/errors.ts';
import type { Layout } from '../ledger/header.ts';
import { RowFields } from '../ledger/row-fields.ts';
import type { SegmentRows } from './segment-reader.ts';
import type { MonthLines } from './store/copy-sink.ts';
import type { SegmentRecord } from './store/segment-records.ts';

/** Each month of a segment costs a partition; a century of them is no ledger. */
const MONTHS_MAX = 1200;
const NULL = '\\N';
const PARTY_PLACES = ENTRY_COLUMNS.flatMap((name, place) => (isPartyColumn(name) ? [place] : []));
const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' };

interface StatedSum {
  readonly rows: bigint;
  readonly valuesDigest: string;
}

/** What the loader found while it read a segment. */
export interface LoadedSums extends StatedSum {
  /** `2023-05` */
  readonly months: readonly (StatedSum & { readonly month: string })[];
  /** Rows whose `effect` is not what their quantity and accounts say; they are loaded as they were sent. */
  readonly effectsContradicted: bigint;
}

/** Gathers rows between two `take` calls. Rows of a chunk of plain bytes become one chunk of COPY input. */
export class CopyRows implements SegmentRows {
  readonly #segment: SegmentRecord;
  readonly #fields = new RowFields();
  readonly #sums = new Map<string, RowDigest>();
  #readRow: ReturnType<typeof openRowReader> | undefined;
  #columns = 0;
  #hasEffect = false;
  #contradictions = 0n;
  #row = 0n;
  /** By month. */
  #lines = new Map<string, string>();

  constructor(segment: SegmentRecord) {
    this.#segment = segment;
  }

  header(layout: Layout): void {
    this.#readRow = openRowReader(layout);
    this.#columns = layout.columns.length;
    this.#hasEffect = layout.index.effect !== undefined;
  }

  /** @throws PermanentError `BAD_VALUE`, `BAD_ROW` or `TOO_MANY_MONTHS`, with the row's number */
  row(buffer: Buffer, start: number, end: number): void {
    this.#row += 1n;
    const row = this.#read(buffer, start, end);
    const month = monthOf(row.values);
    this.#sumOf(month).add(hashText(canonicalText(row.values, row.extra)));
    if (this.#hasEffect && row.effect !== effectOn(this.#segment.partyId, row.values))
      this.#contradictions += 1n;
    this.#lines.set(month, (this.#lines.get(month) ?? '') + copyLine(this.#segment, row));
  }

  /** What was gathered; empty where there was no row. */
  take(): readonly MonthLines[] {
    const months = [...this.#lines].map(([month, text]) => ({ month, lines: Buffer.from(text) }));
    this.#lines = new Map();
    return months;
  }

  sums(): LoadedSums {
    const total = new RowDigest();
    for (const sum of this.#sums.values()) total.merge(sum);
    const months = [...this.#sums].map(([month, sum]) => ({ month, ...stateSum(sum) }));
    return { ...stateSum(total), months, effectsContradicted: this.#contradictions };
  }

  #read(buffer: Buffer, start: number, end: number): CanonicalRow {
    const count = this.#fields.scan(buffer, start, end);
    if (this.#readRow === undefined || count !== this.#columns) {
      throw this.#rowError('BAD_ROW', `it has ${count} fields, the header ${this.#columns}`);
    }
    try {
      return this.#readRow(this.#fields);
    } catch (error) {
      if (error instanceof PermanentError) throw this.#rowError(error.code, error.message, error);
      throw error;
    }
  }

  #sumOf(month: string): RowDigest {
    const known = this.#sums.get(month);
    if (known !== undefined) return known;
    if (this.#sums.size >= MONTHS_MAX) {
      throw this.#rowError('TOO_MANY_MONTHS', `the segment's rows fall in more than ${MONTHS_MAX} months`);
    }
    const sum = new RowDigest();
    this.#sums.set(month, sum);
    return sum;
  }

  #rowError(code: string, state: string, cause?: unknown): PermanentError {
    return new PermanentError(`Cannot load row ${this.#row} of ${this.#segment.objectKey}: ${state}`, {
      code,
      meta: { key: this.#segment.objectKey, row: this.#row.toString() },
      cause,
    });
  }
}

function stateSum(sum: RowDigest): StatedSum {
  return { rows: BigInt(sum.rows), valuesDigest: sum.hex() };
}

/** Most values need no escape: their patterns admit nothing that COPY reads. Parties and unknown columns do. */
function copyLine(segment: SegmentRecord, row: CanonicalRow): string {
  const extra = row.extra.length === 0 ? NULL : escapeText(JSON.stringify(Object.fromEntries(row.extra)));
  let line = `${escapeText(segment.partyId)}\t${segment.segmentId}\t${extra}\t${row.effect === '' ? NULL : row.effect}`;
  const isPlain = PARTY_PLACES.every((place) => !row.values[place]?.includes('\\'));
  const values = isPlain ? row.values : row.values.map(escapeText);
  for (const value of values) line += value === '' ? '\t\\N' : `\t${value}`;
  return `${line}\n`;
}

function escapeText(text: string): string {
  return text.replaceAll(/[\\\t\n\r]/g, (character) => ESCAPES[character] ?? character);
}
