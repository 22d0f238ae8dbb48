/** Sums the rows of a ledger's CSV by month, in the format of a statement's records. */
import type { Readable } from 'node:stream';
import { canonicalText, monthOf, openRowReader } from '../ledger/canonical.ts';
import { PermanentError } from '../errors/errors.ts';
import { hashText, RowDigest } from '../ledger/digest.ts';
import { readHeader } from '../ledger/header.ts';
import { isArchiveDamage } from '../ledger/object-keys.ts';
import { RowFields, RowSplitter, type RowVisitor } from '../ledger/csv-rows.ts';
import type { LedgerRecord, MonthSum } from './ledger-record.ts';

/** Sums rows by month over any number of files. */
export class CsvSums {
  readonly #months = new Map<string, RowDigest>();

  /**
   * Adds all rows of a file.
   * @param where names the file in messages
   * @throws PermanentError `CSV_INCOMPLETE` if the file or its archive is damaged or
   *   truncated, or another code if the header or a row cannot be parsed
   */
  async add(csv: Readable, where: string): Promise<void> {
    let visit: RowVisitor | undefined;
    const splitter = new RowSplitter((buffer, start, end, next) => {
      if (visit === undefined) visit = this.#begin(buffer.subarray(start, end));
      else visit(buffer, start, end, next);
    });
    try {
      for await (const chunk of csv as AsyncIterable<Buffer>)
        splitter.push(chunk);
    } catch (error) {
      if (!isArchiveDamage(error)) throw error;
      throw incomplete(where, 'the archive is damaged or cut off', error);
    }
    if (visit !== undefined && splitter.rest().length === 0) return;
    const state =
      visit === undefined ? 'it has no header' : 'its last line is incomplete';
    throw incomplete(where, state);
  }

  /** Returns the sums, sorted by month. */
  months(): MonthSum[] {
    return [...this.#months]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([month, sum]) => [month, String(sum.rows), sum.hex()]);
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
      const sum = this.#months.get(month) ?? new RowDigest();
      this.#months.set(month, sum);
      sum.add(hashText(canonicalText(values, extra)));
    };
  }
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
