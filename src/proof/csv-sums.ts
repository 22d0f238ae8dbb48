/** Sums the rows of a ledger's CSV by month, in the format of a statement's records. */
import type { Readable } from 'node:stream';
import { canonicalText, monthOf, openRowReader } from '../ledger/canonical.ts';
import { PermanentError } from '../errors/errors.ts';
import { hashText, RowDigest } from '../ledger/digest.ts';
import { readHeader } from '../ledger/header.ts';
import { isArchiveDamage } from '../ledger/object-keys.ts';
import { RowFields, RowSplitter, type RowVisitor } from '../ledger/csv-rows.ts';
import type { LedgerRecord, MonthSum } from './ledger-record.ts';

const LINE_FEED = 0x0a;

/** The rows at or after the `end` given to `CsvSums`. */
export interface NewerRows {
  readonly rows: number;
  /** The instant from which rows count as newer. */
  readonly from: string;
}

/** Sums rows by month over any number of files. */
export class CsvSums {
  readonly #months = new Map<string, RowDigest>();
  readonly #newerMonths = new Map<string, RowDigest>();
  readonly #end: string | undefined;

  /**
   * @param end an instant in the format of `formatInstant`; rows at or after it are
   *   summed separately
   */
  constructor(end?: string) {
    this.#end = end;
  }

  /**
   * Adds all rows of a file.
   * @param where names the file in messages, which also name the line
   * @throws PermanentError `CSV_INCOMPLETE` if the file or its archive is damaged or
   *   truncated, or another code if the header or a row cannot be parsed
   */
  async add(csv: Readable, where: string): Promise<void> {
    let visit: RowVisitor | undefined;
    // The line on which the next row begins. A quoted value may contain line breaks.
    let line = 1;
    const splitter = new RowSplitter((buffer, start, end, next) => {
      if (visit === undefined) visit = this.#begin(buffer.subarray(start, end));
      else visit(buffer, start, end, next);
      line += countLines(buffer, start, next);
    });
    try {
      for await (const chunk of csv as AsyncIterable<Buffer>)
        splitter.push(chunk);
    } catch (error) {
      if (isArchiveDamage(error))
        throw incomplete(where, 'the archive is damaged or cut off', error);
      throw atLine(error, where, line);
    }
    if (visit !== undefined && splitter.rest().length === 0) return;
    const state =
      visit === undefined
        ? 'it has no header'
        : `its last line, ${line}, is incomplete`;
    throw incomplete(where, state);
  }

  /** Returns the sums, sorted by month. */
  months(): MonthSum[] {
    const all = new Map<string, RowDigest>();
    for (const [month, sum] of [...this.#months, ...this.#newerMonths]) {
      const total = all.get(month) ?? new RowDigest();
      total.merge(sum);
      all.set(month, total);
    }
    return sumsOf(all);
  }

  /** Returns the sums of the rows before the end. */
  monthsBefore(): MonthSum[] {
    return sumsOf(this.#months);
  }

  /** Returns the number of rows at or after the end; undefined if there are none. */
  newer(): NewerRows | undefined {
    const rows = [...this.#newerMonths.values()].reduce(
      (sum, month) => sum + month.rows,
      0,
    );
    return this.#end === undefined || rows === 0
      ? undefined
      : { rows, from: this.#end };
  }

  #begin(header: Buffer): RowVisitor {
    const layout = readHeader(header);
    const fields = new RowFields();
    const readRow = openRowReader(layout);
    const columns = layout.columns.length;
    return (buffer, start, end) => {
      const count = fields.scan(buffer, start, end);
      if (count !== columns) {
        throw new PermanentError(
          `Cannot read a row: it has ${count} fields, the header ${columns}; copy the file again`,
          { code: 'BAD_ROW' },
        );
      }
      const { values, extra } = readRow(fields);
      const month = monthOf(values);
      const isNewer = this.#end !== undefined && (values[0] ?? '') >= this.#end;
      const months = isNewer ? this.#newerMonths : this.#months;
      const sum = months.get(month) ?? new RowDigest();
      months.set(month, sum);
      sum.add(hashText(canonicalText(values, extra)));
    };
  }
}

function sumsOf(months: ReadonlyMap<string, RowDigest>): MonthSum[] {
  return [...months]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([month, sum]) => [month, String(sum.rows), sum.hex()]);
}

/** Counts the line breaks from the start of a row to the start of the next one. */
function countLines(buffer: Buffer, start: number, next: number): number {
  let count = 0;
  let at = buffer.indexOf(LINE_FEED, start);
  while (at !== -1 && at < next) {
    count += 1;
    at = buffer.indexOf(LINE_FEED, at + 1);
  }
  return count;
}

/** Returns an error that names the file and the line; other errors stay as they are. */
function atLine(error: unknown, where: string, line: number): unknown {
  if (!(error instanceof PermanentError)) return error;
  const why = error.message.slice(error.message.indexOf(': ') + 2);
  const advice = why.includes('; ') ? '' : '; copy the file again';
  return new PermanentError(
    `Cannot read ${where}, line ${line}: ${why}${advice}`,
    {
      code: error.code,
      meta: { ...error.meta, where, line },
      cause: error.cause,
    },
  );
}

function incomplete(
  where: string,
  state: string,
  cause?: unknown,
): PermanentError {
  return new PermanentError(
    `Cannot sum up ${where}: ${state}; copy the file again`,
    { code: 'CSV_INCOMPLETE', meta: { where }, cause },
  );
}

/** A month in which two sides differ. */
export interface MonthDifference {
  readonly month: string;
  /** The number of rows on each side; null if the side has no rows of this month. */
  readonly left: string | null;
  readonly right: string | null;
}

/** Returns the months that differ between both sides, in order. */
export function differingMonths(
  left: LedgerRecord['months'],
  right: LedgerRecord['months'],
): MonthDifference[] {
  const lefts = new Map(left.map((sum) => [sum[0], sum]));
  const rights = new Map(right.map((sum) => [sum[0], sum]));
  const months = [...new Set([...lefts.keys(), ...rights.keys()])].toSorted();
  return months
    .map((month) => ({
      month,
      left: lefts.get(month),
      right: rights.get(month),
    }))
    .filter(
      ({ left: one, right: other }) =>
        one?.[1] !== other?.[1] || one?.[2] !== other?.[2],
    )
    .map((pair) => ({
      month: pair.month,
      left: pair.left?.[1] ?? null,
      right: pair.right?.[1] ?? null,
    }));
}
