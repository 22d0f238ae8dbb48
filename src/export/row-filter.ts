/**
 * Whether a row is what was asked for. The request is a superset (some releases filter wrongly, and the
 * range is asked with a margin), so membership is decided here, by the exported columns alone.
 */
import { decodeId } from '../ledger/encodings.ts';
import type { Layout } from '../ledger/header.ts';
import { RowFields } from '../ledger/row-fields.ts';
import { VegaTimeReader } from '../ledger/vega-time.ts';
import type { ExportUnit } from './ports.ts';

/** `fields`: not as many as the header has; `time`: no time; `party`, `asset`: not asked for. */
export type RowFinding = 'ok' | 'fields' | 'time' | 'party' | 'asset';

const BACKSLASH = 0x5c;
const LOWER_CASE_BIT = 0x20;
const HEX_CHARACTERS = 64;

export class RowFilter {
  /** The time of the row last checked, where it had one. */
  readonly time = new VegaTimeReader();
  /** The last row is out of an account of the party: to another's, or to one of its own. */
  isFrom = false;
  /** Out of the party's accounts, and to another's: no release lets it pass by mistake. */
  leaves = false;
  readonly #layout: Layout;
  readonly #fields = new RowFields();
  readonly #party: Buffer;
  readonly #asset: Buffer | undefined;
  readonly #word: string | undefined;

  constructor(unit: ExportUnit, layout: Layout) {
    this.#layout = layout;
    this.#party = Buffer.from(unit.partyId);
    const { assetId } = unit;
    this.#asset = assetId === undefined ? undefined : Buffer.from(assetId);
    this.#word = assetId?.length === HEX_CHARACTERS ? undefined : assetId;
  }

  check(buffer: Buffer, start: number, end: number): RowFinding {
    const fields = this.#fields;
    const { index, columns, sides } = this.#layout;
    if (fields.scan(buffer, start, end) !== columns.length) return 'fields';
    const time = index.vega_time;
    if (!this.time.read(buffer, fields.start(time), fields.end(time))) return 'time';
    const isFrom = this.#holds(buffer, index.account_from_party_id, this.#party);
    const isTo = sides === 'both' && this.#holds(buffer, index.account_to_party_id, this.#party);
    this.leaves = isFrom && !isTo;
    this.isFrom = isFrom;
    if (!isFrom && !isTo) return 'party';
    return this.#isAsset(buffer, index.asset_id) ? 'ok' : 'asset';
  }

  get fieldCount(): number {
    return this.#fields.count;
  }

  #isAsset(buffer: Buffer, column: number): boolean {
    if (this.#asset === undefined) return true;
    if (this.#holds(buffer, column, this.#asset)) return true;
    // A built-in asset is a word here, and a byte in some releases.
    return this.#word !== undefined && decodeId(this.#fields.text(column) ?? '') === this.#word;
  }

  /** Whether a field is this id: releases write it as `\x` and hex, or plain, in either case. */
  #holds(buffer: Buffer, column: number, id: Buffer): boolean {
    let position = this.#fields.start(column);
    const end = this.#fields.end(column);
    if (buffer[position] === BACKSLASH) position += 2;
    if (end - position !== id.length) return false;
    for (let at = 0; at < id.length; at += 1, position += 1) {
      if (((buffer[position] ?? 0) | LOWER_CASE_BIT) !== ((id[at] ?? 0) | LOWER_CASE_BIT)) return false;
    }
    return true;
  }
}
