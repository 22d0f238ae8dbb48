/**
 * How long a nightly run may request ledgers from the source, and how much of that time
 * one ledger may use.
 */
import { z } from 'zod';
import { nextScheduledMs } from '../../time/scheduled-times.ts';
import type { JobDeps } from '../job.ts';
import type { Run } from '../store/run-store.ts';
import { readScheduleInForce } from '../store/schedule-store.ts';

const HOUR_MS = 3_600_000;
/** The share of the window that one ledger may use while others wait for its slot. */
const LEDGER_SHARE = 1 / 8;

/** Times in milliseconds since 1970, by the database's clock. */
export interface NightWindow {
  readonly startedMs: number;
  readonly untilMs: number;
}

const storedEnd = z.iso.datetime().transform((text) => Date.parse(text));

/**
 * Returns the window in which a nightly run makes requests. Unless configured, the window
 * ends early enough for the run to finish before the next scheduled time. Its end is read
 * from the schedule once and stored with the run, so that the night's many jobs need not
 * read the schedule, and changing the schedule during the night does not move the window.
 */
export async function fixNightWindow(
  run: Pick<Run, 'runId' | 'params' | 'startedAt' | 'queuedAt'>,
  {
    db,
    runs,
    nightlyWindow,
    schedule: own,
  }: Pick<JobDeps, 'db' | 'runs' | 'nightlyWindow' | 'schedule'>,
): Promise<NightWindow> {
  const startedMs = Date.parse(run.startedAt ?? run.queuedAt);
  if (nightlyWindow !== undefined)
    return { startedMs, untilMs: startedMs + nightlyWindow };
  const stored = storedEnd.safeParse(run.params['windowEndsAt']);
  if (stored.success) return { startedMs, untilMs: stored.data };

  // The workers' schedule, which is the one in force, may differ from that of the process
  // that is working on this run.
  const schedule = (await readScheduleInForce(db, 'nightly')) ?? own;
  const nextMs = nextScheduledMs(schedule, startedMs);
  // If scheduled times are less than two hours apart, half of the interval is used for
  // requests.
  const untilMs = Math.max(
    nextMs - HOUR_MS,
    startedMs + (nextMs - startedMs) / 2,
  );
  const windowEndsAt = new Date(untilMs).toISOString();
  await runs.keep(run.runId, { windowEndsAt });
  return { startedMs, untilMs };
}

export function ledgerShareMs({ startedMs, untilMs }: NightWindow): number {
  return (untilMs - startedMs) * LEDGER_SHARE;
}
