/**
 * The keys of runs that a schedule starts, as they are stored. At most one run has a
 * given key, so that a scheduled time gets one run however often its job is delivered:
 *
 *     nightly 2026-01-02T03:00:00.000Z               the run of this time
 *     nightly 2026-01-02T03:00:00.000Z again 2       after two of its runs have failed
 *     nightly 2026-01-02T03:00:00.000Z at its time   an earlier run came before the time
 *     audit parties 2026-01-04T05:00:00.000Z
 *
 * The first run of an empty mirror has a key without a time.
 */

/** The id of a schedule in the queue. */
export type ScheduleId = 'nightly' | 'audit-parties' | 'audit-checkpoints';

/** Why a scheduled time has a further run. */
type Repeat =
  /**
   * A worker whose clock was ahead had already started a run for this time before the
   * time came.
   */
  | { readonly kind: 'at its time' }
  /** This many runs for the time have failed. */
  | { readonly kind: 'again'; readonly failed: number };

export interface ScheduleKey {
  readonly id: ScheduleId;
  /** The scheduled time, in milliseconds since 1970. */
  readonly dueMs: number;
  /** Absent for the first run of the time. */
  readonly repeat?: Repeat;
}

/** The key of the run that fills an empty mirror without waiting for the schedule. */
export const FIRST_RUN_KEY = 'first';

/** How a key names its schedule. */
const NAMES: Readonly<Record<ScheduleId, string>> = {
  nightly: 'nightly',
  'audit-parties': 'audit parties',
  'audit-checkpoints': 'audit checkpoints',
};

const FORM =
  /^(?<name>[a-z ]+) (?<due>\d{4}-\d\d-\d\dT[\d:.]+Z)(?: (?:(?<atItsTime>at its time)|again (?<failed>\d+)))?$/;

export function formatScheduleKey({ id, dueMs, repeat }: ScheduleKey): string {
  const time = `${NAMES[id]} ${new Date(dueMs).toISOString()}`;
  if (repeat === undefined) return time;
  return repeat.kind === 'again'
    ? `${time} again ${repeat.failed}`
    : `${time} at its time`;
}

/** @returns undefined if the text is not the key of a scheduled time */
export function parseScheduleKey(text: string): ScheduleKey | undefined {
  const { name, due, atItsTime, failed } = FORM.exec(text)?.groups ?? {};
  const id = SCHEDULE_IDS.find((one) => NAMES[one] === name);
  const dueMs = Date.parse(due ?? '');
  if (id === undefined || Number.isNaN(dueMs)) return undefined;
  if (atItsTime !== undefined)
    return { id, dueMs, repeat: { kind: 'at its time' } };
  return failed === undefined
    ? { id, dueMs }
    : { id, dueMs, repeat: { kind: 'again', failed: Number(failed) } };
}

const SCHEDULE_IDS = Object.keys(NAMES) as ScheduleId[];
