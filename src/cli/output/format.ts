/**
 * Formats text and tables for terminals. Counts are shown with all their digits, never
 * rounded.
 */
import { formatCount } from '../../format/format.js';

/**
 * Makes untrusted text safe for a terminal: it replaces control characters, so that no
 * value can move the cursor, hide a line or ring the bell.
 */
export function printable(text: string): string {
  return text.replaceAll(
    // oxlint-disable-next-line no-control-regex -- this function replaces control characters
    /[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g,
    '·',
  );
}

/** Truncates a string to at most `characters` characters, including an ellipsis. */
export function truncate(text: string, characters: number): string {
  if (text.length <= characters) return text;
  return characters <= 1
    ? '…'.slice(0, characters)
    : `${text.slice(0, characters - 1)}…`;
}

type Cell = string | number | bigint | boolean | null | undefined;

/**
 * Formats a table for terminals.
 * @param header names of the columns
 * @param rows cells in the order of the header; columns with only numbers are
 *   right-aligned
 * @returns lines, each with a trailing line break
 */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly Cell[])[],
): string {
  const columns = header.map((name, column) => {
    const cells = rows.map((row) => row[column]);
    const texts = [name, ...cells.map(cellText)];
    const width = Math.max(...texts.map((text) => text.length));
    const isRight = isNumeric(cells);
    const [first, ...others] = texts.map((text) =>
      isRight ? text.padStart(width) : text.padEnd(width),
    );
    return [first, '─'.repeat(width), ...others];
  });
  const lines = ['', '', ...rows].map((_, line) =>
    columns.map((column) => column[line]).join('  '),
  );
  return lines.map((line) => `${line.trimEnd()}\n`).join('');
}

function cellText(cell: Cell): string {
  if (cell === null || cell === undefined) return '–';
  if (typeof cell === 'bigint') return formatCount(cell);
  if (typeof cell === 'number')
    return Number.isInteger(cell) ? formatCount(cell) : String(cell);
  if (typeof cell === 'boolean') return cell ? 'yes' : 'no';
  return printable(cell);
}

function isNumeric(cells: readonly Cell[]): boolean {
  const given = cells.filter((cell) => cell !== null && cell !== undefined);
  const isNumber = (cell: Cell) =>
    typeof cell !== 'boolean' && /^-?[\d,]+(?:\.\d+)?$/.test(String(cell));
  return given.length > 0 && given.every(isNumber);
}
