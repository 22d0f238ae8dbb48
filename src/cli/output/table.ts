/** Tables for terminals: aligned columns, numbers to the right, as wide as the window allows. */
import { formatCount, printable, truncate } from './format.ts';

export type Cell = string | number | bigint | boolean | null | undefined;

export interface TableOptions {
  /** Width of the window in characters. Absent: nothing is cut. */
  readonly columns?: number | undefined;
  /** Rows shown at most; the rest is counted in a last line. */
  readonly rowsMax?: number;
}

const GAP = '  ';
const CELL_CHARACTERS_MIN = 6;

/**
 * @param header names of the columns
 * @param rows cells in the order of the header; a column that holds only numbers is set to the right
 * @returns lines, each ended
 */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly Cell[])[],
  options: TableOptions = {},
): string {
  const { columns = Infinity, rowsMax = rows.length } = options;
  const shown = rows.slice(0, rowsMax);
  const texts = shown.map((row) => header.map((_, column) => cellText(row[column])));
  const isRight = header.map((_, column) => isNumeric(shown, column));
  const widths = header.map((name, column) =>
    Math.min(columns, Math.max(name.length, ...texts.map((row) => row[column]?.length ?? 0))),
  );
  shrink(widths, columns - GAP.length * (header.length - 1));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => {
        const width = widths[column] ?? 0;
        const text = truncate(cell, width);
        return isRight[column] === true ? text.padStart(width) : text.padEnd(width);
      })
      .join(GAP)
      .trimEnd();
  const rule = line(widths.map((width) => '─'.repeat(width)));
  const left = rows.length - shown.length;
  const more = left > 0 ? [`… ${formatCount(left)} more`] : [];
  return [line(header), rule, ...texts.map(line), ...more].map((text) => `${text}\n`).join('');
}

function cellText(cell: Cell): string {
  if (cell === null || cell === undefined) return '–';
  if (typeof cell === 'bigint') return formatCount(cell);
  if (typeof cell === 'number') return Number.isInteger(cell) ? formatCount(cell) : String(cell);
  return typeof cell === 'boolean' ? (cell ? 'yes' : 'no') : printable(cell);
}

function isNumeric(rows: readonly (readonly Cell[])[], column: number): boolean {
  const given = rows.map((row) => row[column]).filter((cell) => cell !== null && cell !== undefined);
  return (
    given.length > 0 &&
    given.every((cell) => typeof cell !== 'boolean' && /^-?[\d,]+(?:\.\d+)?$/.test(String(cell)))
  );
}

/** Takes from the widest column until the table fits, down to a width that still says something. */
function shrink(widths: number[], room: number): void {
  for (let sum = widths.reduce((total, width) => total + width, 0); sum > room; sum -= 1) {
    const widest = Math.max(...widths);
    if (widest <= CELL_CHARACTERS_MIN) return;
    widths[widths.indexOf(widest)] = widest - 1;
  }
}
