/**
 * Reads the facts about nightly runs that the status reports (status/night-facts.ts),
 * from several modules' stores.
 */
import type { Config } from '../config/environment.ts';
import { WorkerRegistry } from '../observability/store/worker-registry.ts';
import type { Database } from '../postgres/database.ts';
import { findMissedMs } from '../runs/nightly/missed-times.ts';
import {
  readNowMs,
  readScheduleInForce,
} from '../runs/store/schedule-store.ts';
import {
  describeNights,
  type NightFacts,
  type ScheduledNights,
} from '../status/night-facts.ts';
import { readRecordedNights } from '../status/store/recorded-nights.ts';
import type { Schedules } from '../time/scheduled-times.ts';

type OwnSchedule = Pick<Config, 'schedule' | 'scheduleTz'>;

/** The workers' schedules, and the scheduled nightly runs. */
export interface ScheduleReading extends ScheduledNights {
  /** The number of long-running worker processes. */
  readonly workers: number;
  /** Schedules of other workers that differ from those in force. */
  readonly others: readonly Schedules[];
}

/**
 * @param own the schedules of this process, which apply if no worker has ever recorded
 *   any
 */
export async function readScheduled(
  db: Database,
  own: OwnSchedule,
): Promise<ScheduleReading> {
  const nowMs = await readNowMs(db);
  const { workers, isScheduled, inForce, others } = await new WorkerRegistry(
    db,
  ).facts();
  const isExpected = isScheduled || workers > 0;
  const schedule = inForce?.nightly ??
    (await readScheduleInForce(db, 'nightly')) ?? {
      pattern: own.schedule,
      tz: own.scheduleTz,
    };
  const missedMs = isExpected
    ? await findMissedMs(schedule, db, nowMs)
    : undefined;

  return { nowMs, workers, inForce, others, missedMs };
}

/**
 * Reads only the facts about nightly runs, for callers that do not need the rest of the
 * status.
 */
export async function readNights(
  db: Database,
  own: OwnSchedule,
): Promise<NightFacts> {
  const [scheduled, recorded] = await Promise.all([
    readScheduled(db, own),
    readRecordedNights(db),
  ]);
  return describeNights(scheduled, recorded);
}
