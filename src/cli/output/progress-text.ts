/**
 * Formats one step of a running run in one line: `parties: 1,200 rows (300 rows/s, 12
 * pages)`.
 */
import type { ProgressLine } from '../../runs/progress.ts';
import { formatQuantity, formatShare } from '../../format/format.js';
import { printable } from './format.ts';

export function progressText({
  label,
  done,
  total,
  unit,
  note,
}: ProgressLine): string {
  const amount =
    total === undefined
      ? formatQuantity(done, unit)
      : formatShare(done, total, unit);
  return `${printable(label)}: ${amount}${note === undefined ? '' : ` (${printable(note)})`}`;
}
