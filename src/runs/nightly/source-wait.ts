/**
 * Makes a nightly run wait while the source is unavailable, so that an outage of minutes
 * costs only minutes. A job that notices the outage records it with the run and waits. A
 * single watch, in the process that is working on the run, probes the source with backoff
 * and records the end of the outage. Meanwhile no ledger or list counts as failed, and
 * the work then resumes where it stopped.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { errorCode, errorLine, UnreachableError } from '../../errors/errors.ts';
import { isSourceAway } from '../../errors/faults.ts';
import type { JobDeps, StageCall } from '../job.ts';
import { sendNotices } from '../notices.ts';
import { isOver } from '../run-document.ts';
import type { Run } from '../store/run-store.ts';
import { readNowMs } from '../store/schedule-store.ts';
import {
  type AbsentRoute,
  endAbsence,
  giveAbsenceUp,
  noteAbsence,
  readAbsence,
  type SourceAbsence,
} from '../store/source-absence.ts';

/** The pauses between two probes of a source that is unavailable. */
export interface WatchPauses {
  readonly minMs: number;
  readonly maxMs: number;
  /** How often the watch checks whether a job has recorded an outage. */
  readonly lookMs: number;
}

const PAUSES: WatchPauses = { minMs: 2_000, maxMs: 60_000, lookMs: 1_000 };
/**
 * Minimum pause before the next export if the source answers lists but not exports. No
 * small request can test the export, so the next ledger serves as the test.
 */
const EXPORT_PAUSE_MIN_MS = 10_000;
const EXPORT_PAUSE_MAX_MS = 300_000;
/** How often a waiting job checks whether the source is back. */
const WAIT_LOOK_MS = 500;

type WaitDeps = Pick<JobDeps, 'db' | 'runs' | 'stages'>;

/**
 * What a failure that looked like an outage of the source turned out to be:
 *
 * - `there`: the source answers a small request immediately, so the failure may be due to
 *   this one request;
 * - `back`: the source was unavailable, the job waited, and the source answers again;
 * - `given up`: the run no longer waits.
 */
export type WaitOutcome = 'there' | 'back' | 'given up';

/**
 * Waits while the source is unavailable to a nightly run.
 * @param runId the nightly run
 * @throws the signal's reason
 */
export async function awaitSource(
  runId: string,
  error: unknown,
  deps: WaitDeps,
  signal: AbortSignal,
): Promise<WaitOutcome> {
  const known = await deps.runs.get(runId);
  const isNoted = known !== undefined && readAbsence(known) !== undefined;
  if (!isNoted && (await deps.stages.isSourceThere(signal))) return 'there';

  return waitForReturn(runId, error, 'everything', deps, signal);
}

/** Waits before the next export, because several consecutive ledgers got no response. */
export async function awaitExport(
  runId: string,
  error: unknown,
  deps: WaitDeps,
  signal: AbortSignal,
): Promise<WaitOutcome> {
  return waitForReturn(runId, error, 'export', deps, signal);
}

async function waitForReturn(
  runId: string,
  error: unknown,
  route: AbsentRoute,
  { db, runs }: WaitDeps,
  signal: AbortSignal,
): Promise<WaitOutcome> {
  const isUnreachable = error instanceof UnreachableError;
  await noteAbsence(db, {
    runId,
    code: errorCode(error),
    message: errorLine(error),
    route,
    isUnreachable,
  });

  for (;;) {
    const run = await runs.get(runId);
    if (run === undefined || isOver(run)) return 'given up';
    const absence = readAbsence(run);
    if (absence === undefined) return 'back';
    if (absence.isGivenUp) return 'given up';
    await sleep(WAIT_LOOK_MS, undefined, { signal });
  }
}

export interface WatchOptions {
  readonly signal: AbortSignal;
  /** When the run's window ends, in milliseconds since 1970 by the database's clock. */
  readonly untilMs: number;
  readonly pauses?: WatchPauses;
}

/**
 * Watches a nightly run's source and records the end of each outage, until the watch
 * itself is ended. It also takes over an outage left by an earlier delivery of the run's
 * job.
 */
export class SourceWatch {
  readonly #run: Run;
  readonly #deps: JobDeps;
  readonly #options: WatchOptions;
  readonly #stop = new AbortController();
  readonly #watching: Promise<void>;
  #exportPauseMs = EXPORT_PAUSE_MIN_MS;
  #exportEndedMs = -Infinity;

  constructor(run: Run, deps: JobDeps, options: WatchOptions) {
    this.#run = run;
    this.#deps = deps;
    this.#options = options;
    this.#watching = this.#watch();
  }

  async end(): Promise<void> {
    this.#stop.abort();
    await this.#watching;
  }

  async #watch(): Promise<void> {
    const signal = AbortSignal.any([this.#options.signal, this.#stop.signal]);
    const { lookMs } = this.#options.pauses ?? PAUSES;

    while (!signal.aborted) {
      try {
        const run = await this.#deps.runs.get(this.#run.runId);
        const absence = run && readAbsence(run);
        if (absence !== undefined && !absence.isGivenUp)
          await this.#overcome(absence, signal);
        await sleep(lookMs, undefined, { signal });
      } catch (error) {
        if (signal.aborted) return;
        // The run itself uses the same database, and waits for it.
        this.#deps.log.debug({ err: error }, 'The source could not be watched');
        await sleep(lookMs, undefined, { signal }).catch(() => undefined);
      }
    }
  }

  /** Probes the source until it is back or the run's window is over. */
  async #overcome(absence: SourceAbsence, signal: AbortSignal): Promise<void> {
    const { db, log } = this.#deps;
    const { runId } = this.#run;
    const { since, code, message: reason, route } = absence;
    const about = { runId, since, code, reason, route };
    log.warn(about, 'The source is unavailable: the nightly run waits for it');
    this.#sendNotices();

    if (await this.#mayWait(absence)) {
      const isBack =
        route === 'export'
          ? await this.#pauseExport(signal)
          : await this.#askUntilBack(signal);
      if (isBack) {
        await endAbsence(db, runId);
        log.info(about, 'The source is back: the nightly run continues');
        return;
      }
    }

    await giveAbsenceUp(db, runId);
    log.warn(
      about,
      'The source is still unavailable: the nightly run stops waiting',
    );
  }

  /**
   * Sends notices in the background, so that a receiver that hangs does not delay probes
   * of the source. Failed notices are sent again by the workers, or at the end of the
   * run.
   */
  #sendNotices(): void {
    const { log } = this.#deps;
    sendNotices(this.#deps).catch((error: unknown) =>
      log.debug({ err: error }, 'Notices could not be sent'),
    );
  }

  /**
   * Whether the run may wait for the source. A run that a command started may not wait if
   * no connection has succeeded since it began: its user is waiting, the address may be
   * wrong, and the requests have already waited for a minute.
   */
  async #mayWait({ isUnreachable }: SourceAbsence): Promise<boolean> {
    const { runId, scheduleKey } = this.#run;
    if (scheduleKey !== null || !isUnreachable) return true;

    const run = await this.#deps.runs.get(runId);
    if (run?.params['clock'] !== undefined) return true;
    const { requests, failures } = await this.#deps.costs.ofRun(runId);
    return requests.lists + requests.exports > failures;
  }

  async #askUntilBack(signal: AbortSignal): Promise<boolean> {
    const { minMs, maxMs } = this.#options.pauses ?? PAUSES;

    for (let pauseMs = minMs; ; pauseMs = Math.min(pauseMs * 2, maxMs)) {
      if (await this.#deps.stages.isSourceThere(signal)) return true;
      if (!(await this.#pause(pauseMs, signal))) return false;
    }
  }

  /** Waits before the next export, for longer each time. */
  async #pauseExport(signal: AbortSignal): Promise<boolean> {
    const isNext =
      performance.now() - this.#exportEndedMs < 2 * EXPORT_PAUSE_MAX_MS;
    this.#exportPauseMs = isNext
      ? Math.min(this.#exportPauseMs * 2, EXPORT_PAUSE_MAX_MS)
      : EXPORT_PAUSE_MIN_MS;
    const isWithin = await this.#pause(this.#exportPauseMs, signal);
    this.#exportEndedMs = performance.now();
    return isWithin;
  }

  /**
   * Waits for the length of the pause, or until the window is over.
   * @returns false if the window ends before the pause would
   */
  async #pause(pauseMs: number, signal: AbortSignal): Promise<boolean> {
    const leftMs = this.#options.untilMs - (await readNowMs(this.#deps.db));
    if (leftMs <= 0) return false;
    // The pause has jitter, so that the mirrors of one source do not all return at once.
    const waitMs = Math.min(leftMs, pauseMs * (0.75 + Math.random() / 2));
    await sleep(waitMs, undefined, { signal });
    return true;
  }
}

/**
 * Maximum number of attempts at a part that fails while the source answers other
 * requests.
 */
const PART_TRIES_MAX = 3;
const PART_PAUSE_MS = 2_000;

/**
 * Repeats part of a nightly run for as long as the source is unavailable.
 * @throws what `work` threw if the source is there, or the run no longer waits
 */
export async function whileSourceAway<Result>(
  runId: string,
  deps: WaitDeps,
  { signal, onProgress }: StageCall,
  label: string,
  work: () => Promise<Result>,
): Promise<Result> {
  for (let tries = 1; ;) {
    try {
      return await work();
    } catch (error) {
      if (signal.aborted || !isSourceAway(error)) throw error;
      const note = `waits for the source: ${errorLine(error)}`;
      onProgress([{ label, done: '0', unit: 'rows', note }]);
      const outcome = await awaitSource(runId, error, deps, signal);
      if (outcome === 'given up') throw error;
      if (outcome === 'back') continue;
      if (tries >= PART_TRIES_MAX) throw error;
      tries += 1;
      await sleep(PART_PAUSE_MS * tries, undefined, { signal });
    }
  }
}
