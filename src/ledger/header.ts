/**
 * Finds columns by name. The source's releases send 12 or 13 columns in different
 * orders and may add more, so nothing in this project relies on a column's position.
 */
import { PermanentError } from '../errors/errors.ts';
import { RowFields } from './csv-rows.ts';

/**
 * The columns that this project knows, in the warehouse's order, with the kinds of
 * their values.
 */
export const COLUMN_KINDS = {
  vega_time: 'time',
  quantity: 'amount',
  effect: 'amount',
  transfer_type: 'transfer',
  asset_id: 'id',
  account_from_market_id: 'id',
  account_from_party_id: 'party',
  account_from_account_type: 'account',
  account_from_balance: 'amount',
  account_to_market_id: 'id',
  account_to_party_id: 'party',
  account_to_account_type: 'account',
  account_to_balance: 'amount',
} as const;

export type KnownColumn = keyof typeof COLUMN_KINDS;
export type ColumnKind = (typeof COLUMN_KINDS)[KnownColumn];
export const KNOWN_COLUMNS = Object.keys(
  COLUMN_KINDS,
) as readonly KnownColumn[];

/**
 * Which sides of a movement a release exports: only the outgoing side if it has no
 * `effect` column, otherwise both.
 */
export type Sides = 'from' | 'both';

const BYTE_ORDER_MARK = Buffer.from('\uFEFF');
const COLUMNS_MAX = 256;

export interface Layout {
  /** All columns in the order in which they were sent. */
  readonly columns: readonly string[];
  /** The position of each known column; `effect` may be missing. */
  readonly index: Readonly<
    Record<Exclude<KnownColumn, 'effect'>, number> & { effect?: number }
  >;
  /** Unknown columns with their positions. */
  readonly unknown: readonly {
    readonly name: string;
    readonly index: number;
  }[];
  readonly sides: Sides;
}

/**
 * Reads the header line, without its line break.
 * @throws PermanentError `COLUMNS_MISSING`, `COLUMNS_REPEATED` or
 *   `HEADER_NOT_UNDERSTOOD`
 */
export function readHeader(line: Buffer): Layout {
  const fields = new RowFields();
  const hasMark = line
    .subarray(0, BYTE_ORDER_MARK.length)
    .equals(BYTE_ORDER_MARK);
  const count = fields.scan(
    line,
    hasMark ? BYTE_ORDER_MARK.length : 0,
    line.length,
  );
  return layoutOf(count > COLUMNS_MAX ? [] : fields.texts());
}

/** Returns the layout for a list of column names, such as `mirror.segments.columns`. */
export function layoutOf(columns: readonly string[]): Layout {
  const repeated = columns.filter(
    (name, index) => columns.indexOf(name) !== index,
  );
  if (repeated.length > 0) {
    throw refused(
      'COLUMNS_REPEATED',
      `columns come twice: ${shown(repeated)}`,
      {
        repeated,
        columns,
      },
    );
  }
  const unstorable = columns.filter((name) => name.includes('\0'));
  if (unstorable.length > 0)
    throw refused(
      'HEADER_NOT_UNDERSTOOD',
      'a column has a NUL character in its name',
      {},
    );
  const positions = new Map(columns.map((name, index) => [name, index]));
  const missing = KNOWN_COLUMNS.filter(
    (name) => name !== 'effect' && !positions.has(name),
  );
  if (missing.length === KNOWN_COLUMNS.length - 1) {
    throw refused(
      'HEADER_NOT_UNDERSTOOD',
      `the first line is not a header: ${shown(columns)}`,
      {
        columns: columns.slice(0, 20).map((name) => name.slice(0, 100)),
      },
    );
  }
  if (missing.length > 0) {
    throw refused('COLUMNS_MISSING', `columns are missing: ${shown(missing)}`, {
      missing,
      columns,
    });
  }
  const [known = [], unknown = []] = [true, false].map((isKnown) =>
    [...positions].filter(
      ([name]) => Object.hasOwn(COLUMN_KINDS, name) === isKnown,
    ),
  );
  return {
    columns,
    index: Object.fromEntries(known) as unknown as Layout['index'],
    unknown: unknown.map(([name, index]) => ({ name, index })),
    sides: positions.has('effect') ? 'both' : 'from',
  };
}

function refused(
  code: string,
  state: string,
  meta: Record<string, unknown>,
): PermanentError {
  return new PermanentError(
    `Cannot read the ledger export: ${state}; a source with another CSV needs EXPORT_COLUMNS`,
    { code, meta },
  );
}

function shown(names: readonly string[]): string {
  const text = names.join(', ');
  return text.length > 200 ? `${text.slice(0, 200)}…` : text;
}
