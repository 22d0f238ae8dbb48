/**
 * Whether every value of a row is one that loading can read, decided before the row is published: what a release
 * never writes is asked for again, not stored. Most values are told by their bytes alone; what those cannot tell is
 * given to the decoders that loading uses.
 */
import {
  DECODERS,
  ENTRY_COLUMNS,
  isAmountColumn,
  isPartyColumn,
  REQUIRED_VALUES,
} from '../../ledger/canonical.ts';
import { decodeId } from '../../ledger/encodings.ts';
import { COLUMN_KINDS, type Layout } from '../../ledger/header.ts';
import type { RowFields } from '../../ledger/row-fields.ts';

const [TEXT, HEX, DIGIT, LETTER] = [1, 2, 4, 8];
/** What a byte may be part of: none of the characters that separate values is part of anything. */
const CLASSES = new Uint8Array(256).fill(TEXT);
for (const [characters, kinds] of [
  ['0123456789', HEX | DIGIT],
  ['abcdef', HEX],
  ['ABCDEF', HEX | LETTER],
  ['GHIJKLMNOPQRSTUVWXYZ', LETTER],
] as const)
  for (const code of Buffer.from(characters)) CLASSES[code] = TEXT | kinds;
for (const separator of [0x00, 0x1e, 0x1f]) CLASSES[separator] = 0;

const BACKSLASH = 0x5c;
const LETTER_X = 0x78;
const DASH = 0x2d;
const UNDERSCORE = 0x5f;
const ID_CHARACTERS = 64;
/** Longer ones are the decoders' affair. */
const PLAIN_DIGITS_MAX = 100;
const PLAIN_NUMBER_MAX = 9;
const NAME_CHARACTERS_MAX = 60;

interface Column {
  readonly name: string;
  readonly index: number;
  readonly kind: 'amount' | 'id' | 'type';
  readonly isRequired: boolean;
  readonly decode: (text: string) => string | undefined;
}

export class RowValues {
  readonly #columns: readonly Column[];
  readonly #unknown: Layout['unknown'];
  /** Texts that the decoders have taken, by column. */
  readonly #taken = new Set<string>();

  /** @param hasOwnIds of the source's parties; elsewhere a text that is no known id is a lie or damage */
  constructor(layout: Layout, hasOwnIds: boolean) {
    // The time is read before, and apart.
    const names = ENTRY_COLUMNS.filter((name) => name !== 'vega_time');
    const effect = layout.index.effect;
    const columns = names.map((name): Column => ({
      name,
      index: layout.index[name],
      kind: isAmountColumn(name) ? 'amount' : name.endsWith('_type') ? 'type' : 'id',
      isRequired: REQUIRED_VALUES.has(name),
      decode: isPartyColumn(name) && !hasOwnIds ? decodeId : DECODERS[COLUMN_KINDS[name]],
    }));
    if (effect !== undefined) {
      const decode = DECODERS.amount;
      columns.push({ name: 'effect', index: effect, kind: 'amount', isRequired: false, decode });
    }
    this.#columns = columns;
    this.#unknown = layout.unknown;
  }

  /** @returns the name of the first column whose value cannot be loaded */
  refused(buffer: Buffer, fields: RowFields): string | undefined {
    for (const column of this.#columns) {
      const [start, end] = [fields.start(column.index), fields.end(column.index)];
      if (!isPlain(column, buffer, start, end) && !this.#isRead(column, fields)) return column.name;
    }
    return this.#unknown.find(({ index }) => !isOf(TEXT, buffer, fields.start(index), fields.end(index)))
      ?.name;
  }

  #isRead({ name, index, decode, isRequired }: Column, fields: RowFields): boolean {
    const text = fields.text(index) ?? '';
    const key = `${name} ${text}`;
    if (this.#taken.has(key)) return true;
    const value = decode(text);
    if (value === undefined || (value === '' && isRequired)) return false;
    if (this.#taken.size < 1024) this.#taken.add(key);
    return true;
  }
}

/** Only what every decoder of the kind takes. */
function isPlain({ kind, isRequired }: Column, buffer: Buffer, start: number, end: number): boolean {
  if (start === end) return !isRequired;
  if (kind === 'amount') {
    const first = buffer[start] === DASH ? start + 1 : start;
    return end - first <= PLAIN_DIGITS_MAX && end > first && isOf(DIGIT, buffer, first, end);
  }
  if (kind === 'id') {
    const first = buffer[start] === BACKSLASH && buffer[start + 1] === LETTER_X ? start + 2 : start;
    if (first === end) return !isRequired;
    return end - first === ID_CHARACTERS && isOf(HEX, buffer, first, end);
  }
  if (end - start <= PLAIN_NUMBER_MAX && isOf(DIGIT, buffer, start, end)) return true;
  return end - start <= NAME_CHARACTERS_MAX && isName(buffer, start, end);
}

function isOf(kind: number, buffer: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) if (((CLASSES[buffer[at] ?? 0] ?? 0) & kind) === 0) return false;
  return true;
}

/** Capital letters with single underscores between them. */
function isName(buffer: Buffer, start: number, end: number): boolean {
  let wasLetter = false;
  for (let at = start; at < end; at += 1) {
    const isLetter = isOf(LETTER, buffer, at, at + 1);
    if (!isLetter && (buffer[at] !== UNDERSCORE || !wasLetter)) return false;
    wasLetter = isLetter;
  }
  return wasLetter;
}
