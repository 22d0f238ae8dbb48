/**
 * Whether a row is what was asked for. The request is a superset (some releases filter wrongly, and the
 * range is asked with a margin), so membership is decided here, by the exported columns alone.
 */
import { isHexId } from '../../core/ids.ts';
import { decodeId, decodePartyId } from '../../ledger/encodings.ts';
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
  readonly #partyId: string;
  /** Where the id is of 64 hex digits, which releases spell in several ways. */
  readonly #party: Int32Array | undefined;
  readonly #decodeParty: (text: string) => string | undefined;
  readonly #asset: Int32Array | undefined;
  readonly #word: string | undefined;
  readonly #values: RowValues | undefined;
  /** The column that made the last row unreadable. */
  column: string | undefined;

  /** @param checksValues not where rows are read back: what was published is passed on as it is */
  constructor(scope: ExportScope, layout: Layout, checksValues = true) {
    this.#layout = layout;
    const { partyId, assetId, hasOwnIds = false } = scope;
    this.#partyId = partyId;
    if (isHexId(partyId)) this.#party = idWords(partyId);
    this.#decodeParty = hasOwnIds ? decodePartyId : decodeId;
    this.#values = checksValues ? new RowValues(layout, hasOwnIds) : undefined;
    if (assetId !== undefined && isHexId(assetId)) this.#asset = idWords(assetId);
    else this.#word = assetId;
  }

  check(buffer: Buffer, start: number, end: number): RowFinding {
    const fields = this.#fields;
    const { index, columns, sides } = this.#layout;
    if (fields.scan(buffer, start, end) !== columns.length) return 'fields';
    const time = index.vega_time;
    if (!this.time.read(buffer, fields.start(time), fields.end(time))) return 'time';
    if (this.time.second < 0 || this.time.second >= SECOND_END) return 'time';
    const isFrom = this.#isParty(index.account_from_party_id);
    const isTo = sides === 'both' && this.#isParty(index.account_to_party_id);
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

  #isParty(column: number): boolean {
    if (this.#party !== undefined) return this.#fields.holds(column, this.#party);
    const text = this.#fields.text(column);
    return text === this.#partyId || (text !== undefined && this.#decodeParty(text) === this.#partyId);
  }

  /** A party in a spelling that nobody knows may be the one that was asked for. */
  #isSpelled(): boolean {
    const { index, sides } = this.#layout;
    const columns = [index.account_from_party_id, ...(sides === 'both' ? [index.account_to_party_id] : [])];
    return columns.every((column) => {
      const party = this.#decodeParty(this.#fields.text(column) ?? '');
      return party !== undefined && party.toLowerCase() !== this.#partyId.toLowerCase();
    });
  }

  #isAsset(column: number): boolean {
    if (this.#asset !== undefined) return this.#fields.holds(column, this.#asset);
    // A built-in asset is a word here, and a byte in some releases.
    return this.#word === undefined || decodeId(this.#fields.text(column) ?? '') === this.#word;
  }
}
