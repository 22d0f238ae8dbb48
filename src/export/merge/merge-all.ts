/** What a night merges: ledger by ledger, until it has written as much as a night may. */
import { errorCode, errorLine, UnreachableError } from '../../core/errors.ts';
import type { Log } from '../../core/log.ts';
import { monthStart } from '../../core/time.ts';
import type { ExportArchiveStore } from '../store/export-archive.ts';
import { type MergeDeps, type Merged, mergeLedger } from './merge-ledger.ts';

/** Of plain CSV: minutes to read and write, and as many to load again. */
const NIGHT_BYTES_MAX = 4n * 2n ** 30n;
const NIGHT_LEDGERS_MAX = 5_000;

export interface MergeReport extends Readonly<Merged> {
  readonly ledgers: number;
  /** Ledgers left to the next night: others worked on them, or this night had written enough. */
  readonly left: number;
  readonly failed: number;
}

export interface MergeAllDeps extends MergeDeps {
  readonly archive: Pick<ExportArchiveStore, 'closedTo' | 'mergeable'>;
  readonly log: Log;
  /** `EXPORT_SEGMENT_MAX`. */
  readonly segmentBytesMax: number;
  readonly nightBytesMax?: bigint | undefined;
}

/** A ledger that cannot be merged does not stop the others, and stays as it is. @throws UnreachableError */
export async function mergeAll(deps: MergeAllDeps, signal: AbortSignal): Promise<MergeReport> {
  const { archive, log, segmentBytesMax, nightBytesMax = NIGHT_BYTES_MAX } = deps;
  const sum = { ledgers: 0, segments: 0, into: 0, rows: 0n, bytes: 0n, left: 0, failed: 0 };
  const closedTo = await archive.closedTo();
  if (closedTo === undefined) return sum;
  const limits = { before: monthStart(closedTo), bytesMax: BigInt(segmentBytesMax) };
  for (const scope of await archive.mergeable(limits, NIGHT_LEDGERS_MAX)) {
    signal.throwIfAborted();
    try {
      const isMerged = sum.bytes < nightBytesMax && (await mergeLedger(scope, deps, limits, sum, signal));
      sum[isMerged ? 'ledgers' : 'left'] += 1;
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof UnreachableError) throw error;
      sum.failed += 1;
      const reason = { code: errorCode(error), reason: errorLine(error) };
      log.warn({ partyId: scope.partyId, ...reason }, 'Segments could not be merged');
    }
  }
  return sum;
}
