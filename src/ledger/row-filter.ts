/**
 * Decides whether a row belongs to the requested ledger, by its exported columns alone.
 * The source sends other rows too, because some releases filter wrongly and the range
 * is requested with a margin.
 */
import { canonicalId } from './ids.ts';
import {
  decodeExtra,
  DECODERS,
  kindOf,
  remember,
  REQUIRED_VALUES,
} from './canonical.ts';
import { decodeId, decodePartyId } from './encodings.ts';
import type { ColumnKind, Layout } from './header.ts';
import {
  IS_ASSET,
  IS_FROM,
  IS_TO,
  NOT_PLAIN,
  PLAIN_ROW_MAX,
  type PlainColumn,
  PlainRows,
} from './plain-rows.ts';
import { cellText, RowFields } from './csv-rows.ts';
import { VegaTimeReader } from './vega-time.ts';
import type { ExportScope } from './export-scope.ts';

/**
 * Why a row is not accepted. `fields`: its field count differs from the header's;
 * `time`: its time is invalid; `spelling`: a party is not an id; `value`: a value
 * cannot be loaded; `party`, `asset`: it belongs to another party or asset.
 */
export type RowFinding = 'ok' | UnreadableRow | 'party' | 'asset';
export type UnreadableRow = 'fields' | 'time' | 'spelling' | 'value';

/**
 * The end of the accepted times, in seconds since 1970. Later times, in the year 9999,
 * would leave no room for a later instant. Times before 1970 are rejected, because the
 * service did not exist then.
 */
const SECOND_END = Date.UTC(9999, 0, 1) / 1000;

export class RowFilter {
  /** The time of the last checked row, if it had one. */
  readonly time = new VegaTimeReader();
  /** The fields of the last row that was read as text, as every unreadable row is. */
  readonly fields = new RowFields();
  /**
   * Whether the last row is a movement out of one of the party's accounts, into its own
   * or another party's account.
   */
  isFrom = false;
  /**
   * Whether the last row is a movement from one of the party's accounts to another
   * party's account. No release sends such a row by mistake.
   */
  leaves = false;
  /** The name of the column that made the last row unreadable. */
  column: string | undefined;
  readonly #layout: Layout;
  readonly #scope: ExportScope;
  readonly #decodeParty: (text: string) => string | undefined;
  readonly #decodeAsset = remember(decodeId);
  readonly #refused: ReturnType<typeof valueCheck> | undefined;
  readonly #plain: PlainRows;

  /**
   * @param checksValues false when published rows are read back, because they are
   *   passed on unchanged
   */
  constructor(scope: ExportScope, layout: Layout, checksValues = true) {
    this.#layout = layout;
    this.#scope = scope;
    // If the party's id is not in the public service's format, the source has its own
    // ids.
    const { hasOwnIds = canonicalId(scope.partyId) === undefined } = scope;
    const decode = hasOwnIds ? decodePartyId : decodeId;
    this.#decodeParty = remember((cell) => decode(cellText(cell)));
    const columns = columnsOf(layout, hasOwnIds);
    if (checksValues) this.#refused = valueCheck(columns);
    this.#plain = new PlainRows(
      columns.map((column) => this.#plainColumn(column)),
      this.time,
    );
  }

  check(buffer: Buffer, start: number, end: number): RowFinding {
    const found = this.#plain.read(buffer, start, end);
    if (
      found === NOT_PLAIN ||
      this.time.second < 0 ||
      this.time.second >= SECOND_END
    )
      return this.checkText(buffer, start, end);
    this.column = undefined;
    this.isFrom = (found & IS_FROM) !== 0;
    const isTo = (found & IS_TO) !== 0;
    this.leaves = this.isFrom && !isTo;
    if (!this.isFrom && !isTo) return 'party';
    return (found & IS_ASSET) === 0 ? 'asset' : 'ok';
  }

  /**
   * Checks the row by its text. This is the authoritative check; the faster one must
   * agree with it.
   */
  checkText(buffer: Buffer, start: number, end: number): RowFinding {
    const { fields } = this;
    const { index, columns, sides } = this.#layout;
    if (fields.scan(buffer, start, end) !== columns.length) return 'fields';
    if (!this.time.read(fields.cell(index.vega_time))) return 'time';
    if (this.time.second < 0 || this.time.second >= SECOND_END) return 'time';
    const from = fields.cell(index.account_from_party_id);
    const to =
      sides === 'both' ? fields.cell(index.account_to_party_id) : undefined;
    this.isFrom = this.#isParty(from);
    const isTo = to !== undefined && this.#isParty(to);
    this.leaves = this.isFrom && !isTo;
    if (!this.isFrom && !isTo)
      return [from, to ?? from].every((cell) => this.#isOther(cell))
        ? 'party'
        : 'spelling';
    this.column = this.#refused?.(fields);
    if (this.column !== undefined) return 'value';
    const { assetId } = this.#scope;
    // A built-in asset is a word here but one byte in some releases.
    const isAsset =
      assetId === undefined ||
      this.#decodeAsset(fields.cell(index.asset_id)) === assetId;
    return isAsset ? 'ok' : 'asset';
  }

  /**
   * Creates the reader of a column for plain rows. A cell counts as plain only if every
   * rule would accept its text.
   */
  #plainColumn(column: Column): PlainColumn {
    const { name, index, isRequired, kind } = column;
    if (kind === undefined) return { kind: 'extra' };
    if (kind === 'time') return { kind: 'time' };
    if (kind === 'amount') return { kind: 'amount', isRequired };
    const { sides, index: places } = this.#layout;
    const isFrom = index === places.account_from_party_id;
    const isTo = index === places.account_to_party_id && sides === 'both';
    const { assetId } = this.#scope;
    const decide = (cell: string): number => {
      if (!isLoadable(column, cellText(cell))) return NOT_PLAIN;
      if (isFrom || isTo) {
        if (this.#isParty(cell)) return isFrom ? IS_FROM : IS_TO;
        return this.#isOther(cell) ? 0 : NOT_PLAIN;
      }
      if (name !== 'asset_id') return 0;
      const isAsset =
        assetId === undefined || this.#decodeAsset(cell) === assetId;
      return isAsset ? IS_ASSET : 0;
    };
    return { kind: 'text', decide };
  }

  #isParty(cell: string): boolean {
    return this.#decodeParty(cell) === this.#scope.partyId;
  }

  /**
   * Whether the cell is definitely a different party. A party in an unknown spelling
   * may be the requested one.
   */
  #isOther(cell: string): boolean {
    const party = this.#decodeParty(cell);
    return (
      party !== undefined &&
      party.toLowerCase() !== this.#scope.partyId.toLowerCase()
    );
  }
}

const TYPE = String.raw`\d{1,9}|[A-Z]{1,15}(?:_[A-Z]{1,15}){0,5}`;
/** The repetition is written out, because a counted one takes three times as long. */
const ID = String.raw`(?:\\x)?${'[0-9a-f]'.repeat(64)}|network|\\x03`;
/**
 * Patterns of values as releases write them. The decoder of each kind accepts every
 * match.
 */
const PLAIN: Readonly<Record<ColumnKind, string>> = {
  time: '[^,"]+',
  amount: String.raw`-?\d+`,
  transfer: TYPE,
  account: TYPE,
  id: ID,
  party: ID,
};
const NONE = '|""|';
const NO_ID = String.raw`|""|\\x|`;
const PLAIN_EXTRA = '[^,"\u0000\u001e\u001f]*';

/** A column, and what its values must look like for the loader. */
interface Column {
  readonly name: string;
  readonly index: number;
  /** The kind of the column's values; undefined if the column is unknown. */
  readonly kind: ColumnKind | undefined;
  readonly isRequired: boolean;
  /** A pattern; `decode` accepts every string that matches it. */
  readonly plain: string;
  readonly decode: (text: string) => string | undefined;
}

/**
 * Prepares the columns of a layout.
 * @param hasOwnIds whether the source has its own party ids; if not, a string that is
 *   not a known id is invalid
 */
function columnsOf(layout: Layout, hasOwnIds: boolean): readonly Column[] {
  return layout.columns.map((name, index) => {
    const kind = kindOf(name);
    const isRequired = REQUIRED_VALUES.has(name);
    const column = { name, index, kind, isRequired };
    if (kind === undefined)
      return { ...column, plain: PLAIN_EXTRA, decode: decodeExtra };
    const none = PLAIN[kind] === ID ? NO_ID : NONE;
    const plain = isRequired ? PLAIN[kind] : PLAIN[kind] + none;
    const decode = kind === 'party' && !hasOwnIds ? decodeId : DECODERS[kind];
    return { ...column, plain, decode };
  });
}

function isLoadable({ decode, isRequired }: Column, text: string): boolean {
  const value = decode(text);
  return value !== undefined && !(value === '' && isRequired);
}

/**
 * Creates a check that all values of a row can be loaded. It runs before the row is
 * published, so that a row with a value that no release writes is requested again
 * instead of stored. One regular expression accepts nearly all rows; the others are
 * checked by the decoders that the loader uses.
 * @returns a function that returns the name of the first column whose value cannot be
 *   loaded
 */
function valueCheck(columns: readonly Column[]) {
  const plainRow = new RegExp(
    `^${columns.map(({ plain }) => `(?:${plain})`).join(',')}$`,
  );
  return (fields: RowFields): string | undefined => {
    if (fields.row.length <= PLAIN_ROW_MAX && plainRow.test(fields.row))
      return undefined;
    return columns.find(
      (column) => !isLoadable(column, fields.text(column.index)),
    )?.name;
  };
}
