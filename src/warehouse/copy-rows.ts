/**
 * Converts a segment's rows to COPY input (text format) and sums their values by month.
 */
import {
  canonicalText,
  type CanonicalRow,
  effectOn,
  ENTRY_COLUMNS,
  isPartyColumn,
  monthOf,
  openRowReader,
} from '../ledger/canonical.ts';
import { addDigests, hashText, RowDigest } from '../ledger/digest.ts';
import { PermanentError } from '../errors/errors.ts';
import type { Layout } from '../ledger/header.ts';
import { RowFields, type RowVisitor } from '../ledger/csv-rows.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import { readSegment } from './segment-reader.ts';
import type { MonthLines, RowSink } from './store/copy-sink.ts';
import type { SegmentRecord } from '../catalog/segment-records.ts';

/**
 * Maximum number of months in one segment. Each month needs a partition, and no ledger
 * spans more than a century.
 */
const MONTHS_MAX = 1200;
const NULL = '\\N';
const PARTY_PLACES = ENTRY_COLUMNS.flatMap((name, place) =>
  isPartyColumn(name) ? [place] : [],
);
const ESCAPES: Readonly<Record<string, string>> = {
  '\\': '\\\\',
  '\t': '\\t',
  '\n': '\\n',
  '\r': '\\r',
};

/** The sum of one month of a segment. */
export interface MonthSum {
  /** The month, as `2023-05`. */
  readonly month: string;
  readonly rows: number;
  /** The additive digest of the rows' canonical values, as 64 hex digits. */
  readonly valuesDigest: string;
}

/** Sums that the loader computed while it read a segment. */
export interface LoadedSums {
  /** The additive digest of all rows' canonical values, as 64 hex digits. */
  readonly valuesDigest: string;
  readonly months: readonly MonthSum[];
  readonly rows: bigint;
  /**
   * How many rows have an `effect` that contradicts their quantity and accounts. Such
   * rows are loaded as the source sent them.
   */
  readonly effectsContradicted: bigint;
}

/**
 * Reads a segment and sends its rows to the sink piece by piece.
 * @throws SegmentFault `BAD_VALUE`, `BAD_ROW` or `TOO_MANY_MONTHS` with the row's number,
 *   and what `readSegment` throws
 */
export async function copySegment(
  objects: ObjectStore,
  segment: SegmentRecord,
  sink: RowSink,
  signal: AbortSignal,
): Promise<LoadedSums> {
  const rows = new RowGatherer(segment);
  const begin = (layout: Layout): RowVisitor => rows.begin(layout);
  for await (const _ of readSegment(objects, segment, begin, signal)) {
    const months = rows.take();
    if (months.length > 0) await sink.write(months);
  }
  return rows.sums();
}

interface GatheredMonth {
  readonly sum: RowDigest;
  /** COPY input that `take` has not returned yet. */
  lines: string;
  /** Whether these lines are plain; see `MonthLines`. */
  isPlain: boolean;
}

/** Collects a segment's rows as COPY input, by month, until the next call to `take`. */
class RowGatherer {
  readonly #segment: SegmentRecord;
  readonly #isPlainParty: boolean;
  readonly #months = new Map<string, GatheredMonth>();
  #rowNumber = 0n;
  #effectsContradicted = 0n;

  constructor(segment: SegmentRecord) {
    this.#segment = segment;
    this.#isPlainParty = escapeText(segment.partyId) === segment.partyId;
  }

  /** Returns the visitor that collects rows in this layout. */
  begin(layout: Layout): RowVisitor {
    const fields = new RowFields();
    const readRow = openRowReader(layout);
    const columns = layout.columns.length;
    const hasEffect = layout.index.effect !== undefined;
    return (buffer, start, end) => {
      this.#rowNumber += 1n;
      const count = fields.scan(buffer, start, end);
      if (count !== columns) {
        throw this.#rowError(
          'BAD_ROW',
          `it has ${count} fields, the header ${columns}`,
        );
      }
      this.#add(this.#read(readRow, fields), hasEffect);
    };
  }

  /**
   * Returns the lines collected since the last call, one chunk per month; empty if there
   * were no rows.
   */
  take(): readonly MonthLines[] {
    const taken: MonthLines[] = [];
    for (const [month, gathered] of this.#months) {
      if (gathered.lines === '') continue;
      const lines = Buffer.from(gathered.lines);
      taken.push({ month, lines, isPlain: gathered.isPlain });
      gathered.lines = '';
      gathered.isPlain = true;
    }
    return taken;
  }

  sums(): LoadedSums {
    const months = [...this.#months].map(([month, { sum }]) => ({
      month,
      rows: sum.rows,
      valuesDigest: sum.hex(),
    }));
    return {
      valuesDigest: addDigests(months.map(({ valuesDigest }) => valuesDigest)),
      months,
      rows: BigInt(months.reduce((total, { rows }) => total + rows, 0)),
      effectsContradicted: this.#effectsContradicted,
    };
  }

  #add(row: CanonicalRow, hasEffect: boolean): void {
    const month = this.#monthOf(row);
    month.sum.add(hashText(canonicalText(row.values, row.extra)));
    month.lines += copyLine(this.#segment, row);
    if (!this.#isPlainParty || row.extra.length > 0 || !isPlainRow(row))
      month.isPlain = false;
    if (
      hasEffect &&
      row.effect !== effectOn(this.#segment.partyId, row.values)
    ) {
      this.#effectsContradicted += 1n;
    }
  }

  #monthOf(row: CanonicalRow): GatheredMonth {
    const name = monthOf(row.values);
    const existing = this.#months.get(name);
    if (existing !== undefined) return existing;
    if (this.#months.size >= MONTHS_MAX) {
      const state = `the segment's rows fall in more than ${MONTHS_MAX} months`;
      throw this.#rowError('TOO_MANY_MONTHS', state);
    }
    const begun = { sum: new RowDigest(), lines: '', isPlain: true };
    this.#months.set(name, begun);
    return begun;
  }

  #read(
    readRow: (fields: RowFields) => CanonicalRow,
    fields: RowFields,
  ): CanonicalRow {
    try {
      return readRow(fields);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      throw this.#rowError(error.code, error.message, error);
    }
  }

  #rowError(code: string, state: string, cause?: unknown): PermanentError {
    const { objectKey } = this.#segment;
    const message = `Cannot load row ${this.#rowNumber} of ${objectKey}: ${state}`;
    const meta = { key: objectKey, row: this.#rowNumber.toString() };
    return new PermanentError(message, { code, meta, cause });
  }
}

/**
 * Formats one line of COPY input. Most values need no escaping, because their patterns
 * exclude every character that COPY interprets. Party ids, and columns that this version
 * does not know, may need it.
 */
function copyLine(segment: SegmentRecord, row: CanonicalRow): string {
  const extra =
    row.extra.length === 0
      ? NULL
      : escapeText(JSON.stringify(Object.fromEntries(row.extra)));
  const effect = row.effect === '' ? NULL : row.effect;
  const values = isPlainRow(row) ? row.values : row.values.map(escapeText);

  let line = `${escapeText(segment.partyId)}\t${segment.segmentId}\t${extra}\t${effect}`;
  for (const value of values) line += value === '' ? `\t${NULL}` : `\t${value}`;
  return `${line}\n`;
}

/** Whether no value of a row needs escaping. */
function isPlainRow({ values }: CanonicalRow): boolean {
  return PARTY_PLACES.every((place) => !values[place]?.includes('\\'));
}

function escapeText(text: string): string {
  return text.replaceAll(
    /[\\\t\n\r]/g,
    (character) => ESCAPES[character] ?? character,
  );
}
