/**
 * Whether a row is what was asked for. The request is a superset (some releases filter
 * wrongly, and the range is asked with a margin), so membership is decided here, by the
 * exported columns alone.
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
import { cellText, RowFields } from './row-fields.ts';
import { VegaTimeReader } from './vega-time.ts';
import type { ExportScope } from './export-scope.ts';

/**
 * `fields`: not as many as the header has; `time`: not a time; `spelling`: a party that is
 * not an id; `value`: a value that cannot be loaded; `party`, `asset`: not asked for.
 */
export type RowFinding = 'ok' | UnreadableRow | 'party' | 'asset';
export type UnreadableRow = 'fields' | 'time' | 'spelling' | 'value';

/**
 * The service began after 1970; from the year 9999 on an instant has no room for what
 * comes after it.
 */
const SECOND_END = Date.UTC(9999, 0, 1) / 1000;

export class RowFilter {
  /** The time of the row last checked, where it had one. */
  readonly time = new VegaTimeReader();
  /** The cells of the last row that was read as text, as every unreadable row is. */
  readonly fields = new RowFields();
  /**
   * The last row is out of an account of the party: to another's, or to one of its own.
   */
  isFrom = false;
  /**
   * Out of the party's accounts, and to another's: no release lets it pass by mistake.
   */
  leaves = false;
  /** The column that made the last row unreadable. */
  column: string | undefined;
  readonly #layout: Layout;
  readonly #scope: ExportScope;
  readonly #decodeParty: (text: string) => string | undefined;
  readonly #decodeAsset = remember(decodeId);
  readonly #refused: ReturnType<typeof valueCheck> | undefined;
  readonly #plain: PlainRows;

  /**
   * @param checksValues not where rows are read back: what was published is passed on as
   *   it is
   */
  constructor(scope: ExportScope, layout: Layout, checksValues = true) {
    this.#layout = layout;
    this.#scope = scope;
    // An id that is none of the public service's is the source's own.
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

  /** The same by the row's text: it decides what no shorter way may decide otherwise. */
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
    // A built-in asset is a word here, and a byte in some releases.
    const isAsset =
      assetId === undefined ||
      this.#decodeAsset(fields.cell(index.asset_id)) === assetId;
    return isAsset ? 'ok' : 'asset';
  }

  /** A cell decides its row only where its text alone would be accepted by every rule. */
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

  /** A party in a spelling that nobody knows may be the one that was asked for. */
  #isOther(cell: string): boolean {
    const party = this.#decodeParty(cell);
    return (
      party !== undefined &&
      party.toLowerCase() !== this.#scope.partyId.toLowerCase()
    );
  }
}

const TYPE = String.raw`\d{1,9}|[A-Z]{1,15}(?:_[A-Z]{1,15}){0,5}`;
/** Spelled out, for the sake of speed: counted, the digits take three times as long. */
const ID = String.raw`(?:\\x)?${'[0-9a-f]'.repeat(64)}|network|\\x03`;
/** What releases write, of which every decoder of the kind takes all. */
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

/** A column, and what its values have to be for loading to read them. */
interface Column {
  readonly name: string;
  readonly index: number;
  /** undefined of a column that nobody knew. */
  readonly kind: ColumnKind | undefined;
  readonly isRequired: boolean;
  /** A pattern of texts that `decode` takes. */
  readonly plain: string;
  readonly decode: (text: string) => string | undefined;
}

/**
 * @param hasOwnIds of the source's parties; elsewhere a text that is no known id is a lie
 *   or damage
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
 * Whether every value of a row is one that loading can read, decided before the row is
 * published: what a release never writes is asked for again, not stored. Nearly all rows
 * are told by one expression; the values of the others are given to the decoders that
 * loading uses.
 * @returns gives the name of the first column whose value cannot be loaded
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
