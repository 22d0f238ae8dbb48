/** What stages report, as lines that every view shows the same way. */
import type { ProgressLine } from './progress-line.ts';
import type { ExportProgress } from '../../export/request.ts';
import type { LakeProgress } from '../../lake/build/build.ts';
import type { VerifyCounts } from '../../load/verify.ts';
import type { SyncProgress } from '../../list-sync/context.ts';

const PARTY_SHOWN_CHARACTERS = 12;

/** `1 segment`, `20,224 rows`. */
function quantity(count: number | bigint, noun: string): string {
  const shown = new Intl.NumberFormat('en').format(count);
  return `${shown} ${noun}${BigInt(count) === 1n ? '' : 's'}`;
}

export function syncLine({ list, rows, pages, rowsPerSecond, phase }: SyncProgress): ProgressLine {
  const ending = phase === 'reading' ? '' : ', proving the end';
  return {
    label: list,
    done: String(rows),
    unit: 'rows',
    note: `${rowsPerSecond} rows/s, ${quantity(pages, 'page')}${ending}`,
  };
}

function shorten(partyId: string): string {
  return partyId.length <= PARTY_SHOWN_CHARACTERS ? partyId : `${partyId.slice(0, PARTY_SHOWN_CHARACTERS)}…`;
}

export function exportLine({ partyId, bytes, rows, segments }: ExportProgress): ProgressLine {
  return {
    // One line, whichever party it is about: a night has many.
    label: 'exporting',
    done: String(bytes),
    unit: 'bytes',
    note: `${quantity(rows, 'row')}, ${quantity(segments, 'segment')}, party ${shorten(partyId)}`,
  };
}

export function loadLine(parties: number, segments: number, rows: bigint): ProgressLine {
  return {
    label: 'load',
    done: String(rows),
    unit: 'rows',
    note: `${quantity(segments, 'segment')} of ${parties} ${parties === 1 ? 'party' : 'parties'}`,
  };
}

export function lakeLine({ partition, rows }: LakeProgress): ProgressLine {
  return { label: 'lake', done: String(rows), unit: 'rows', note: partition };
}

export function verifyLine({ segments, objectBytes, warehouseRows, lakeRows }: VerifyCounts): ProgressLine {
  const rows = warehouseRows + lakeRows;
  return {
    label: 'verify',
    done: String(objectBytes),
    unit: 'bytes',
    note: `${quantity(segments, 'segment')}${rows === 0n ? '' : `, ${quantity(rows, 'row')}`}`,
  };
}
