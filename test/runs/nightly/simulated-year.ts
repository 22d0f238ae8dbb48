/**
 * A year of nights by a simulated clock. The decisions are the real ones: when a schedule
 * fires, whether the queue keeps it, whether a job came early, whether a time is settled,
 * when a failed night is tried again. Simulated are the clocks, the workers that come and
 * go, the source, and how long a night takes.
 */
import { isScheduleKept } from '../../../src/queue/kept-schedule.ts';
import {
  type Attempt,
  earlyByMs,
  dueAgainMs,
  isBeforeSchedule,
  judgeScheduledTime,
  LATE_MS,
  listPassedOver,
  listReplaced,
} from '../../../src/runs/nightly/scheduled-time.ts';
import {
  lastScheduledMs,
  nextScheduledMs,
  type Schedule,
} from '../../../src/time/scheduled-times.ts';

export const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;
const LOOK_MS = 30_000;
const WINDOW_MS = 5 * HOUR_MS;
/** How long a worker that died goes unnoticed. */
const SILENT_MS = 30_000;

export interface SimulatedNight extends Attempt {
  readonly dueMs: number;
  readonly key: string;
  readonly startedMs: number;
  /** While it is open: when it will end if a worker goes on with it. */
  endsMs: number;
  isOpen: boolean;
  hasFailed: boolean;
  finishedMs: number | null;
}

/** A long-lived worker: its settings, and how far its clock is from the database's. */
interface Worker {
  readonly schedule: Schedule;
  readonly startedMs: number;
  aheadMs: number;
}

/** When each schedule came into force. */
export interface InForce {
  readonly schedule: Schedule;
  readonly sinceMs: number;
}

export class SimulatedYear {
  readonly nights: SimulatedNight[] = [];
  readonly inForce: InForce[] = [];
  /** Scheduled times that a log line has named as not made up, or skipped. */
  readonly named = new Set<number>();
  readonly #random: () => number;
  readonly #mirrorSinceMs: number;
  #nowMs: number;
  #workers: Worker[] = [];
  #held: { pattern: string; tz: string; next: number } | undefined;
  /** A job that came early, or was delivered while another night was going. */
  #waiting: { dueMs: number; atMs: number } | undefined;
  /** The source is away from … to …, ascending. */
  #away: readonly (readonly [number, number])[] = [];

  constructor(beginMs: number, random: () => number) {
    this.#random = random;
    this.#nowMs = beginMs;
    this.#mirrorSinceMs = beginMs;
  }

  setAway(away: readonly (readonly [number, number])[]): void {
    this.#away = away;
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  get workers(): number {
    return this.#workers.length;
  }

  startWorker(schedule: Schedule, aheadMs: number): void {
    this.#workers.push({ schedule, startedMs: this.#nowMs, aheadMs });
    // A worker takes an overdue job before it looks at the schedules, or after.
    if (this.#random() < 0.5) this.#deliver();
    this.#look();
  }

  stopWorker(index: number): void {
    this.#workers.splice(index, 1);
  }

  jumpClock(index: number, aheadMs: number): void {
    const worker = this.#workers[index];
    if (worker !== undefined) worker.aheadMs = aheadMs;
  }

  /** Lets time pass, from one moment at which something may happen to the next. */
  advanceTo(untilMs: number): void {
    while (this.#nowMs < untilMs) {
      this.#nowMs = Math.min(untilMs, this.#nextMomentMs());
      this.#endNight();
      this.#deliver();
      this.#look();
    }
  }

  #nextMomentMs(): number {
    if (this.#workers.length === 0) return Infinity;

    const moments = this.#workers.flatMap(({ aheadMs }) =>
      this.#held === undefined ? [] : [this.#held.next - aheadMs],
    );
    if (this.#waiting !== undefined) moments.push(this.#waiting.atMs);
    const open = this.#openNight();
    if (open !== undefined) moments.push(open.endsMs);

    const schedule = this.#current();
    if (schedule !== undefined && open === undefined) {
      const dueMs = lastScheduledMs(schedule, this.#nowMs);
      const state = this.#judge(schedule, dueMs);
      const nextMs = nextScheduledMs(schedule, this.#nowMs);
      for (const { aheadMs } of this.#workers) {
        const lateMs = LATE_MS + Math.max(0, -aheadMs);
        // Workers look every half minute.
        const beginMs = dueAgainMs(state, 'nightly', dueMs, lateMs);
        if (!state.isSettled) moments.push(beginMs + this.#random() * LOOK_MS);
        moments.push(nextMs + lateMs);
      }
    }
    const later = moments.filter((ms) => ms > this.#nowMs);
    return later.length === 0 ? Infinity : Math.min(...later);
  }

  #openNight(): SimulatedNight | undefined {
    return this.nights.findLast(({ isOpen }) => isOpen);
  }

  /** The schedule of the worker that started last; all of them keep it. */
  #current(): Schedule | undefined {
    return this.#workers.toSorted((a, b) => a.startedMs - b.startedMs).at(-1)
      ?.schedule;
  }

  #look(): void {
    const schedule = this.#current();
    if (schedule === undefined) return;

    const last = this.inForce.at(-1)?.schedule;
    if (last?.pattern !== schedule.pattern || last.tz !== schedule.tz) {
      this.#nameReplaced();
      this.inForce.push({ schedule, sinceMs: this.#nowMs });
    }
    for (const { aheadMs } of this.#workers) {
      const clockMs = this.#nowMs + aheadMs;
      if (!isScheduleKept(this.#held, schedule, clockMs))
        this.#held = { ...schedule, next: nextScheduledMs(schedule, clockMs) };
      this.#makeUp(schedule, aheadMs);
    }
  }

  #namePassedOver(dueMs: number): void {
    const schedule = this.#current();
    if (schedule === undefined) return;
    const lastDueMs = lastScheduledMs(schedule, this.#nowMs);
    const state = this.#judge(schedule, lastDueMs);
    for (const ms of listReplaced(schedule, state, dueMs, this.#nowMs))
      this.named.add(ms);
  }

  #nameReplaced(): void {
    const last = this.inForce.at(-1);
    if (last === undefined) return;
    const ends = this.nights.map(({ finishedMs }) => finishedMs ?? 0);
    const sinceMs = Math.max(last.sinceMs, ...ends.slice(-60));
    for (const ms of listPassedOver(last.schedule, sinceMs, this.#nowMs))
      this.named.add(ms);
  }

  #deliver(): void {
    for (const { aheadMs } of this.#workers) {
      const clockMs = this.#nowMs + aheadMs;
      if (this.#held === undefined || this.#held.next > clockMs) continue;
      const dueMs = this.#held.next;
      const next = nextScheduledMs(this.#held, Math.max(dueMs, clockMs));
      this.#held = { ...this.#held, next };
      this.#claim(dueMs);
    }
    const { dueMs, atMs } = this.#waiting ?? { dueMs: 0, atMs: Infinity };
    if (this.#workers.length === 0 || atMs > this.#nowMs) return;
    this.#waiting = undefined;
    this.#claim(dueMs);
  }

  #claim(dueMs: number): void {
    const earlyMs = earlyByMs(dueMs, this.#nowMs);
    if (earlyMs > 0) {
      this.#waiting = {
        dueMs,
        atMs: this.#nowMs + Math.min(earlyMs, MINUTE_MS),
      };
      return;
    }
    const current = this.inForce.at(-1);
    if (current !== undefined) {
      const { schedule, sinceMs } = current;
      if (isBeforeSchedule({ ...schedule, sinceMs }, dueMs, this.#nowMs))
        return;
    }
    const key = keyOf(dueMs);
    const open = this.#openNight();
    if (open !== undefined) {
      if (!open.key.startsWith(key)) this.named.add(dueMs);
      return;
    }
    if (this.nights.some((night) => night.key === key)) return;
    this.#namePassedOver(dueMs);
    this.#begin(dueMs, key);
  }

  #judge(schedule: Schedule, dueMs: number) {
    const before = this.nights.findLast(
      ({ finishedMs }) => finishedMs !== null && finishedMs < dueMs,
    );
    const current = this.inForce.at(-1);
    const isOtherInForce =
      current !== undefined &&
      (current.schedule.pattern !== schedule.pattern ||
        current.schedule.tz !== schedule.tz);
    return judgeScheduledTime(
      {
        attempts: this.nights.slice(-60),
        mirrorSinceMs: this.#mirrorSinceMs,
        scheduleSinceMs: isOtherInForce ? null : (current?.sinceMs ?? null),
        isOtherInForce,
        lastEndedMs: before?.finishedMs ?? null,
      },
      dueMs,
      this.#nowMs,
    );
  }

  #makeUp(schedule: Schedule, aheadMs: number): void {
    const dueMs = lastScheduledMs(schedule, this.#nowMs);
    const state = this.#judge(schedule, dueMs);
    const lateMs = LATE_MS + Math.max(0, -aheadMs);
    const beginMs = dueAgainMs(state, 'nightly', dueMs, lateMs);
    if (state.isSettled || this.#nowMs < beginMs) return;

    if (state.failed === 0)
      for (const ms of listPassedOver(schedule, state.knownSinceMs, dueMs))
        this.named.add(ms);
    const key = keyOf(dueMs);
    const isTried = this.nights.some((night) => night.key === key);
    const isAgain = state.failed > 0 && isTried;
    this.#begin(dueMs, isAgain ? `${key} again ${state.failed}` : key);
  }

  #begin(dueMs: number, key: string): void {
    if (this.nights.slice(-60).some((night) => night.key === key)) return;
    const workMs = (2 + this.#random() * 60) * MINUTE_MS;
    const [endsMs, isAway] = this.#whenDone(workMs);
    const hasFailed = isAway || this.#random() < 0.02;
    this.nights.push({
      dueMs,
      key,
      startedMs: this.#nowMs,
      endsMs,
      isOpen: true,
      hasFailed,
      finishedMs: null,
    });
  }

  /** A night waits while the source is away, and ends with its window at the latest. */
  #whenDone(workMs: number): readonly [endsMs: number, isAway: boolean] {
    const untilMs = this.#nowMs + WINDOW_MS;
    let leftMs = workMs;
    let atMs = this.#nowMs;
    for (const [fromMs, toMs] of this.#away) {
      if (toMs <= atMs) continue;
      if (fromMs - atMs >= leftMs) break;
      leftMs -= Math.max(0, fromMs - atMs);
      atMs = toMs;
      if (atMs >= untilMs) return [untilMs, true];
    }
    return [Math.min(untilMs, atMs + leftMs), false];
  }

  #endNight(): void {
    const open = this.#openNight();
    if (open === undefined || this.#workers.length === 0) return;
    if (open.endsMs > this.#nowMs) return;
    // Its worker may have died: another finds the run silent and goes on with it.
    const isTakenOver = this.#workers.every(
      ({ startedMs }) => startedMs > open.endsMs,
    );
    if (isTakenOver && this.#nowMs - open.endsMs < SILENT_MS) {
      open.endsMs = this.#nowMs + SILENT_MS;
      return;
    }
    open.isOpen = false;
    open.finishedMs = this.#nowMs;
    this.#nameOverrun(open);
  }

  #nameOverrun({ startedMs }: SimulatedNight): void {
    const current = this.inForce.at(-1);
    if (current === undefined) return;
    const sinceMs = Math.max(startedMs, current.sinceMs);
    for (const ms of listPassedOver(current.schedule, sinceMs, this.#nowMs))
      this.named.add(ms);
  }
}

function keyOf(dueMs: number): string {
  return `nightly ${new Date(dueMs).toISOString()}`;
}
