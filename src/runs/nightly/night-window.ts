/** How long a nightly run asks the source for ledgers, and what one ledger may take of it. */
import { nextScheduledMs } from '../../time/scheduled-times.ts';
import type { JobDeps } from '../job.ts';
import type { Run } from '../store/run-store.ts';
import { readScheduleInForce } from '../store/schedule-store.ts';

const HOUR_MS = 3_600_000;
/** The share of the window that one ledger may take while others wait for its slot. */
const LEDGER_SHARE = 1 / 8;

/** In milliseconds since 1970, by the database's clock. */
export interface NightWindow {
  readonly startedMs: number;
  readonly untilMs: number;
}

/**
 * Asking ends with the window, or early enough for the rest of the run before the next
 * scheduled time.
 */
export async function readNightWindow(
  run: Pick<Run, 'startedAt' | 'queuedAt'>,
  {
    db,
    nightlyWindow,
    schedule: own,
  }: Pick<JobDeps, 'db' | 'nightlyWindow' | 'schedule'>,
): Promise<NightWindow> {
  const startedMs = Date.parse(run.startedAt ?? run.queuedAt);
  if (nightlyWindow !== undefined)
    return { startedMs, untilMs: startedMs + nightlyWindow };

  // The workers' schedule may be another than that of the process that works the run.
  const schedule = await readScheduleInForce(db, own);
  const nextMs = nextScheduledMs(schedule, startedMs);
  // Where the times are closer than that, half of what lies between them is for asking.
  const untilMs = Math.max(
    nextMs - HOUR_MS,
    startedMs + (nextMs - startedMs) / 2,
  );
  return { startedMs, untilMs };
}

export function ledgerShareMs({ startedMs, untilMs }: NightWindow): number {
  return (untilMs - startedMs) * LEDGER_SHARE;
}
