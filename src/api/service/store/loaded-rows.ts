/** A short range of a large segment from the warehouse, in the bytes that the source sent. */
import { formatInstant } from '../../../core/time.ts';
import { ENTRY_COLUMNS, type EntryColumn, isAmountColumn } from '../../../ledger/canonical.ts';
import { Speller } from '../../../ledger/spelling.ts';
import type { Rows } from '../../../postgres/rows.ts';
import type { LedgerQuestion } from '../../../ledger/ledger-range.ts';

/** More are read from the object: then most of the time is that of sending them. */
const ROWS_MAX = 20_000;

const VALUES = ([...ENTRY_COLUMNS, 'effect'] as const)
  .map((column) => {
    if (column === 'vega_time')
      return `to_char(vega_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as vega_time`;
    return `coalesce(${column}${isAmountColumn(column) ? '::text' : ''}, '') as ${column}`;
  })
  .join(', ');

/** One statement, one moment: a load that replaces the segment is seen whole or not at all. */
const ROWS = `
  select s.columns as segment_columns, s.evidence -> 'spelling' as spelling, e.*
  from mirror.segments s left join lateral (
    select ${VALUES} from mirror.ledger_entries
    where party_id = $2 and segment_id = s.segment_id and vega_time >= $3 and vega_time < $4
      and ($5::text is null or asset_id = $5) order by ledger_entries.vega_time, ledger_entries.ctid limit ${ROWS_MAX + 1}) e on true
  where s.segment_id = $1 and s.loaded_at is not null and s.evidence ? 'spelling'`;

interface LoadedRow extends Readonly<Record<EntryColumn | 'effect', string>> {
  readonly segment_columns: readonly string[];
  readonly spelling: readonly string[];
}

export class LoadedRows {
  readonly #rows: Rows;

  constructor(rows: Rows) {
    this.#rows = rows;
  }

  /**
   * The lines of a segment in a range that has an end, by time.
   * @returns undefined where they are too many, or not loaded, or where not every row is known to be written in one way
   */
  async read(segmentId: bigint, { partyId, assetId, from, to }: LedgerQuestion): Promise<Buffer | undefined> {
    if (from === undefined || to === undefined) return undefined;
    const range = [formatInstant(from), formatInstant(to)];
    const values = [segmentId, partyId, ...range, assetId];
    const rows = await this.#rows<LoadedRow>('read loaded entries', ROWS, values);
    const [first] = rows;
    if (first === undefined || rows.length > ROWS_MAX) return undefined;
    // The segment alone: nothing of it lies in the range.
    if (first.vega_time === null) return Buffer.alloc(0);
    const speller = new Speller(first.segment_columns, first.spelling);
    return Buffer.from(rows.map((row) => speller.line(row)).join(''), 'latin1');
  }
}
