/**
 * Whether a row is what was asked for. The request is a superset (some releases filter wrongly, and the
 * range is asked with a margin), so membership is decided here, by the exported columns alone.
 */
import { decodeId } from '../../ledger/encodings.ts';
import type { Layout } from '../../ledger/header.ts';
import { idWords, RowFields } from '../../ledger/row-fields.ts';
import { RowValues } from './row-values.ts';
import { VegaTimeReader } from '../../ledger/vega-time.ts';
import type { ExportScope } from '../ports.ts';

/**
 * `fields`: not as many as the header has; `time`: none that is one; `spelling`: a party that is no id; `value`: one
 * that cannot be loaded; `party`, `asset`: not asked for.
 */
export type RowFinding = 'ok' | Unreadable | 'party' | 'asset';
export type Unreadable = 'fields' | 'time' | 'spelling' | 'value';

const HEX_CHARACTERS = 64;
/** The service began after 1970; from the year 9999 on an instant has no room for what comes after it. */
const SECOND_END = Date.UTC(9999, 0, 1) / 1000;

export class RowFilter {
  /** The time of the row last checked, where it had one. */
  readonly time = new VegaTimeReader();
  /** The last row is out of an account of the party: to another's, or to one of its own. */
  isFrom = false;
  /** Out of the party's accounts, and to another's: no release lets it pass by mistake. */
  leaves = false;
  readonly #layout: Layout;
  readonly #fields = new RowFields();
  readonly #party: Int32Array;
  readonly #asset: Int32Array | undefined;
  readonly #word: string | undefined;
  readonly #values: RowValues | undefined;
  /** The column that made the last row unreadable. */
  column: string | undefined;

  /** @param checksValues not where rows are read back: what was published is passed on as it is */
  constructor(scope: ExportScope, layout: Layout, checksValues = true) {
    this.#layout = layout;
    this.#party = idWords(scope.partyId);
    this.#values = checksValues ? new RowValues(layout) : undefined;
    const { assetId } = scope;
    if (assetId?.length === HEX_CHARACTERS) this.#asset = idWords(assetId);
    else this.#word = assetId;
  }

  check(buffer: Buffer, start: number, end: number): RowFinding {
    const fields = this.#fields;
    const { index, columns, sides } = this.#layout;
    if (fields.scan(buffer, start, end) !== columns.length) return 'fields';
    const time = index.vega_time;
    if (!this.time.read(buffer, fields.start(time), fields.end(time))) return 'time';
    if (this.time.second < 0 || this.time.second >= SECOND_END) return 'time';
    const isFrom = fields.holds(index.account_from_party_id, this.#party);
    const isTo = sides === 'both' && fields.holds(index.account_to_party_id, this.#party);
    this.leaves = isFrom && !isTo;
    this.isFrom = isFrom;
    if (!isFrom && !isTo) return this.#isSpelled() ? 'party' : 'spelling';
    this.column = this.#values?.refused(buffer, fields);
    if (this.column !== undefined) return 'value';
    return this.#isAsset(index.asset_id) ? 'ok' : 'asset';
  }

  get fieldCount(): number {
    return this.#fields.count;
  }

  /** A party in a spelling that nobody knows may be the one that was asked for. */
  #isSpelled(): boolean {
    const { index, sides } = this.#layout;
    const columns = [index.account_from_party_id, ...(sides === 'both' ? [index.account_to_party_id] : [])];
    return columns.every((column) => decodeId(this.#fields.text(column) ?? '') !== undefined);
  }

  #isAsset(column: number): boolean {
    if (this.#asset !== undefined) return this.#fields.holds(column, this.#asset);
    // A built-in asset is a word here, and a byte in some releases.
    return this.#word === undefined || decodeId(this.#fields.text(column) ?? '') === this.#word;
  }
}
