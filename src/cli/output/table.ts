/** Tables for terminals: aligned columns, numbers to the right. */
import { formatCount, printable } from './format.ts';

export type Cell = string | number | bigint | boolean | null | undefined;

const GAP = '  ';

/**
 * @param header names of the columns
 * @param rows cells in the order of the header; a column that holds only numbers is set to the right
 * @returns lines, each ended
 */
export function formatTable(header: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const columns = header.map((name, column) => {
    const cells = rows.map((row) => row[column]);
    const texts = [name, ...cells.map(cellText)];
    const width = Math.max(...texts.map((text) => text.length));
    const isRight = isNumeric(cells);
    const [first, ...others] = texts.map((text) => (isRight ? text.padStart(width) : text.padEnd(width)));
    return [first, '─'.repeat(width), ...others];
  });
  const lines = ['', '', ...rows].map((_, line) => columns.map((column) => column[line]).join(GAP));
  return lines.map((line) => `${line.trimEnd()}\n`).join('');
}

function cellText(cell: Cell): string {
  if (cell === null || cell === undefined) return '–';
  if (typeof cell === 'bigint') return formatCount(cell);
  if (typeof cell === 'number') return Number.isInteger(cell) ? formatCount(cell) : String(cell);
  return typeof cell === 'boolean' ? (cell ? 'yes' : 'no') : printable(cell);
}

function isNumeric(cells: readonly Cell[]): boolean {
  const given = cells.filter((cell) => cell !== null && cell !== undefined);
  const isNumber = (cell: Cell) => typeof cell !== 'boolean' && /^-?[\d,]+(?:\.\d+)?$/.test(String(cell));
  return given.length > 0 && given.every(isNumber);
}
