/**
 * How long a nightly run requests ledgers from the source, and how much of that time one
 * ledger may use.
 */
import { nextScheduledMs } from '../../time/scheduled-times.ts';
import type { JobDeps } from '../job.ts';
import type { Run } from '../store/run-store.ts';
import { readScheduleInForce } from '../store/schedule-store.ts';

const HOUR_MS = 3_600_000;
/** The share of the window that one ledger may use while others wait for its slot. */
const LEDGER_SHARE = 1 / 8;

/** In milliseconds since 1970, by the database's clock. */
export interface NightWindow {
  readonly startedMs: number;
  readonly untilMs: number;
}

/**
 * Returns the window in which a nightly run makes requests. Unless it is configured, the
 * window ends early enough to finish the run before the next scheduled time.
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

  // The workers' schedule may differ from that of the process that works the run.
  const schedule = await readScheduleInForce(db, own);
  const nextMs = nextScheduledMs(schedule, startedMs);
  // If scheduled times are less than two hours apart, half of the interval is for
  // requests.
  const untilMs = Math.max(
    nextMs - HOUR_MS,
    startedMs + (nextMs - startedMs) / 2,
  );
  return { startedMs, untilMs };
}

export function ledgerShareMs({ startedMs, untilMs }: NightWindow): number {
  return (untilMs - startedMs) * LEDGER_SHARE;
}
