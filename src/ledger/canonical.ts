/**
 * The canonical row (row form `values-v1`): what a line of the CSV says, apart from how the source's
 * release wrote it. Its text is what `values_digest` sums, so the same rows have the same sum whether
 * they are read from objects, the warehouse or the lake.
 */
import { PermanentError } from '../core/errors.ts';
import { formatInstant, parseInstant } from '../core/time.ts';
import { decodeAccountType, decodeId, decodeInteger, decodeTransferType } from './encodings.ts';

type Decode = (text: string) => string | undefined;

interface EntryColumn {
  readonly name: string;
  readonly decode: Decode;
  /** How many different texts are worth remembering; ids and types repeat, amounts do not. */
  readonly remembered: number;
  readonly required: boolean;
}

const IDS_REMEMBERED = 4096;
const TYPES_REMEMBERED = 256;
const TIMES_REMEMBERED = 1024;

function id(name: string, required: boolean): EntryColumn {
  return { name, decode: decodeId, remembered: IDS_REMEMBERED, required };
}
function accountType(name: string): EntryColumn {
  return { name, decode: decodeAccountType, remembered: TYPES_REMEMBERED, required: false };
}
function integer(name: string, required: boolean): EntryColumn {
  return { name, decode: decodeInteger, remembered: 0, required };
}

/** The values that make an entry, in their order; `effect` follows from them and is kept beside them. */
const COLUMNS: readonly EntryColumn[] = [
  { name: 'vega_time', decode: decodeTime, remembered: TIMES_REMEMBERED, required: true },
  integer('quantity', true),
  { name: 'transfer_type', decode: decodeTransferType, remembered: TYPES_REMEMBERED, required: true },
  id('asset_id', true),
  id('account_from_market_id', false),
  id('account_from_party_id', false),
  accountType('account_from_account_type'),
  integer('account_from_balance', false),
  id('account_to_market_id', false),
  id('account_to_party_id', false),
  accountType('account_to_account_type'),
  integer('account_to_balance', false),
];

export const ENTRY_COLUMNS: readonly string[] = COLUMNS.map((column) => column.name);
export const EFFECT_COLUMN = 'effect';

const VALUE_SEPARATOR = '\u001f';
const EXTRA_SEPARATOR = '\u001e';
const FORBIDDEN_IN_EXTRA = new Set(['\u0000', VALUE_SEPARATOR, EXTRA_SEPARATOR]);

/** A column that nobody knew, and its text. */
export type ExtraValue = readonly [name: string, text: string];

export interface CanonicalRow {
  /** In the order of ENTRY_COLUMNS; '' where the entry has none. */
  readonly values: readonly string[];
  /** '' where the release does not send it. */
  readonly effect: string;
  /** Sorted by name. */
  readonly extra: readonly ExtraValue[];
}

/** `2023-05`: the partition that a row belongs to. */
export function monthOf(values: readonly string[]): string {
  return (values[0] ?? '').slice(0, 7);
}

/** The text that is summed. No value can hold a separator: each matched its pattern. */
export function canonicalText(values: readonly string[], extra: readonly ExtraValue[]): string {
  const text = values.join(VALUE_SEPARATOR);
  if (extra.length === 0) return text;
  return text + extra.map(([name, value]) => EXTRA_SEPARATOR + name + VALUE_SEPARATOR + value).join('');
}

/** Extra values from stored JSON (`extra` of a row) in the order that is summed. */
export function extraFromJson(json: string): readonly ExtraValue[] {
  const parsed: unknown = JSON.parse(json);
  if (typeof parsed !== 'object' || parsed === null) return [];
  return sortExtra(Object.entries(parsed).map(([name, value]): ExtraValue => [name, String(value)]));
}

function sortExtra(extra: ExtraValue[]): ExtraValue[] {
  return extra.toSorted(([a], [b]) => (a < b ? -1 : 1));
}

function decodeTime(text: string): string | undefined {
  const instant = parseInstant(text);
  return instant === undefined ? undefined : formatInstant(instant);
}

interface PlacedColumn {
  readonly name: string;
  readonly index: number;
  readonly decode: Decode;
  readonly required: boolean;
}

/** Reads rows of one CSV; made once a file, from its header. */
export class RowCanonicalizer {
  readonly #placed: readonly PlacedColumn[];
  readonly #effectIndex: number | undefined;
  readonly #extra: readonly (readonly [name: string, index: number])[];

  /**
   * @param columns the header's names in their order
   * @throws PermanentError `COLUMNS_MISSING` naming what an entry cannot do without
   */
  constructor(columns: readonly string[]) {
    const missing = ENTRY_COLUMNS.filter((name) => !columns.includes(name));
    if (missing.length > 0) {
      throw new PermanentError(
        `Cannot read the ledger rows: the header lacks ${missing.join(', ')}; the source's release is not known`,
        { code: 'COLUMNS_MISSING', meta: { missing, columns } },
      );
    }
    this.#placed = COLUMNS.map(({ name, decode, remembered, required }) => ({
      name,
      index: columns.indexOf(name),
      decode: remembered > 0 ? remember(decode, remembered) : decode,
      required,
    }));
    const effectIndex = columns.indexOf(EFFECT_COLUMN);
    this.#effectIndex = effectIndex === -1 ? undefined : effectIndex;
    const unknown = columns.filter((name) => name !== EFFECT_COLUMN && !ENTRY_COLUMNS.includes(name));
    this.#extra = unknown.toSorted().map((name) => [name, columns.indexOf(name)] as const);
  }

  /**
   * @param fields the row's fields in the header's order, quotes removed
   * @throws PermanentError `BAD_VALUE` with the column and a short piece of the text
   */
  read(fields: readonly string[]): CanonicalRow {
    const values: string[] = [];
    for (const column of this.#placed) {
      const text = fields[column.index] ?? '';
      const value = column.decode(text);
      if (value === undefined || (value === '' && column.required)) throw badValue(column.name, text);
      values.push(value);
    }
    return { values, effect: this.#effectOf(fields), extra: this.#extraOf(fields) };
  }

  #effectOf(fields: readonly string[]): string {
    if (this.#effectIndex === undefined) return '';
    const text = fields[this.#effectIndex] ?? '';
    const effect = decodeInteger(text);
    if (effect === undefined) throw badValue(EFFECT_COLUMN, text);
    return effect;
  }

  #extraOf(fields: readonly string[]): readonly ExtraValue[] {
    if (this.#extra.length === 0) return [];
    return this.#extra.map(([name, index]) => {
      const text = fields[index] ?? '';
      for (const character of text) {
        if (FORBIDDEN_IN_EXTRA.has(character)) throw badValue(name, text);
      }
      return [name, text] as const;
    });
  }
}

/** Remembers what texts mean; forgets everything when full, so that memory stays flat. */
function remember(decode: Decode, entriesMax: number): Decode {
  const known = new Map<string, string>();
  return (text) => {
    const before = known.get(text);
    if (before !== undefined) return before;
    const value = decode(text);
    if (value === undefined) return undefined;
    if (known.size >= entriesMax) known.clear();
    known.set(text, value);
    return value;
  };
}

const SHOWN_CHARACTERS_MAX = 80;

function badValue(column: string, text: string): PermanentError {
  const shown = JSON.stringify(text.slice(0, SHOWN_CHARACTERS_MAX));
  return new PermanentError(
    `Cannot read a ledger row: ${column} is ${shown}, which no known release writes; the segment is set aside`,
    { code: 'BAD_VALUE', meta: { column, text: shown } },
  );
}
