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
import { addDigests, hashText, RowDigest } from '../ledger/digest.ts';
import { PermanentError } from '../errors/errors.ts';
import type { Layout } from '../ledger/header.ts';
import { RowFields } from '../ledger/row-fields.ts';
import type { RowVisitor } from '../ledger/row-splitter.ts';
import type { ObjectStore } from '../storage/object-store.ts';
import { readSegment } from './segment-reader.ts';
import type { MonthLines, RowSink } from './store/copy-sink.ts';
import type { SegmentRecord } from '../catalog/segment-records.ts';

/** Each month of a segment costs a partition; a century of them is no ledger. */
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

/** What the loader found while it read a segment. */
export type LoadedSums = ReturnType<ReturnType<typeof gatherRows>['sums']>;

/**
 * Reads a segment and sends its rows to the sink, piece by piece.
 * @throws SegmentFault `BAD_VALUE`, `BAD_ROW` or `TOO_MANY_MONTHS` with the row's number, and what `readSegment` throws
 */
export async function copySegment(
  objects: ObjectStore,
  segment: SegmentRecord,
  sink: RowSink,
  signal: AbortSignal,
): Promise<LoadedSums> {
  const rows = gatherRows(segment);
  for await (const _ of readSegment(objects, segment, rows.begin, signal)) {
    const months = rows.take();
    if (months.length > 0) await sink.write(months);
  }
  return rows.sums();
}

/** Gathers rows between two `take` calls: of each month, one chunk of COPY input. */
function gatherRows(segment: SegmentRecord) {
  const { partyId, objectKey } = segment;
  const months = new Map<string, { readonly sum: RowDigest; lines: string }>();
  let rowNumber = 0n;
  let effectsContradicted = 0n;

  function rowError(code: string, state: string, cause?: unknown) {
    const meta = { key: objectKey, row: rowNumber.toString() };
    return new PermanentError(`Cannot load row ${rowNumber} of ${objectKey}: ${state}`, {
      code,
      meta,
      cause,
    });
  }

  function read(readRow: ReturnType<typeof openRowReader>, fields: RowFields) {
    try {
      return readRow(fields);
    } catch (error) {
      if (error instanceof PermanentError)
        throw rowError(error.code, error.message, error);
      throw error;
    }
  }

  function beginMonth(month: string) {
    if (months.size >= MONTHS_MAX)
      throw rowError(
        'TOO_MANY_MONTHS',
        `the segment's rows fall in more than ${MONTHS_MAX} months`,
      );
    const begun = { sum: new RowDigest(), lines: '' };
    months.set(month, begun);
    return begun;
  }

  return {
    begin: (layout: Layout): RowVisitor => {
      const fields = new RowFields();
      const readRow = openRowReader(layout);
      const wanted = layout.columns.length;
      const hasEffect = layout.index.effect !== undefined;
      return (buffer, start, end) => {
        rowNumber += 1n;
        const count = fields.scan(buffer, start, end);
        if (count !== wanted)
          throw rowError('BAD_ROW', `it has ${count} fields, the header ${wanted}`);
        const row = read(readRow, fields);
        const name = monthOf(row.values);
        const month = months.get(name) ?? beginMonth(name);
        month.sum.add(hashText(canonicalText(row.values, row.extra)));
        month.lines += copyLine(segment, row);
        if (hasEffect && row.effect !== effectOn(partyId, row.values))
          effectsContradicted += 1n;
      };
    },
    /** What was gathered; empty where there was no row. */
    take: (): readonly MonthLines[] => {
      const filled = [...months].filter(([, { lines }]) => lines !== '');
      return filled.map(([month, of]) => {
        const lines = Buffer.from(of.lines);
        of.lines = '';
        return { month, lines };
      });
    },
    sums: () => {
      const ofMonths = [...months].map(([month, { sum }]) => ({
        month,
        rows: sum.rows,
        valuesDigest: sum.hex(),
      }));
      return {
        valuesDigest: addDigests(ofMonths.map((of) => of.valuesDigest)),
        /** `2023-05` */
        months: ofMonths,
        rows: BigInt(ofMonths.reduce((sum, { rows }) => sum + rows, 0)),
        /** Rows whose `effect` is not what their quantity and accounts say; they are loaded as they were sent. */
        effectsContradicted,
      };
    },
  };
}

/** Most values need no escape: their patterns admit nothing that COPY reads. Parties and unknown columns do. */
function copyLine(segment: SegmentRecord, row: CanonicalRow): string {
  const extra =
    row.extra.length === 0
      ? NULL
      : escapeText(JSON.stringify(Object.fromEntries(row.extra)));
  let line = `${escapeText(segment.partyId)}\t${segment.segmentId}\t${extra}\t${row.effect === '' ? NULL : row.effect}`;
  const isPlain = PARTY_PLACES.every((place) => !row.values[place]?.includes('\\'));
  const values = isPlain ? row.values : row.values.map(escapeText);
  for (const value of values) line += value === '' ? '\t\\N' : `\t${value}`;
  return `${line}\n`;
}

function escapeText(text: string): string {
  return text.replaceAll(/[\\\t\n\r]/g, (character) => ESCAPES[character] ?? character);
}
