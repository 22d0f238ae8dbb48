/**
 * The frame around every job that works a run: one verdict, however often the job is
 * delivered.
 */
import { createHash } from 'node:crypto';
import {
  errorCode,
  errorLine,
  FencedError,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../errors/errors.ts';
import { isSourceAway } from '../errors/faults.ts';
import { inRun } from '../logging/log.ts';
import {
  type Verdict,
  type VerdictWithEvidence,
  worst,
} from '../errors/verdict.ts';
import type { JobContext, JobDeps, BeforeFinish, StageCall } from './job.ts';
import type { Run } from './store/run-store.ts';

const HEARTBEAT_MS = 3_000;
/** A run of any length says so often how far it is. */
const TELL_EVERY_MS = 60_000;
/** The longest that reporting a failed run may take; then it ends without a report. */
const LAST_WORDS_MS = 60_000;
/**
 * Deliveries of one run's job, crashes included. Counted in Postgres, whatever the queue
 * remembers.
 */
const DELIVERIES_MAX = 100;
/** So many processes in a row may end over the same work. */
export const DEATHS_MAX = 3;
/** A process that was ended sooner proves nothing. */
const LIFE_MS_MIN = 3_000;
/** Tries of work that failed with an error that may pass. */
const RETRIES_MAX = 6;
/**
 * A job of a run that no database of this mirror knows: restored from a backup, it may
 * still appear.
 */
const UNKNOWN_RETRIES_MAX = 20;
const REFUSED_RETRY_MS = 2_000;
/** A service that could not be reached at all for this long ends the run. */
const UNREACHABLE_MAX_MS = 60_000;
/** Longer than the longest pause between two tries: in between, the work went on. */
const AWAY_FORGOTTEN_MS = 90_000;

export interface WorkRunDeps extends Pick<
  JobDeps,
  'runs' | 'source' | 'log' | 'progress' | 'costs'
> {
  readonly tellEveryMs?: number;
}

/**
 * Starts or resumes the run, renews it while `work` runs and reports its progress, and
 * records how it ended.
 * @throws what may pass, so that the queue delivers the job again
 */
export async function workRun(
  runId: string,
  deps: WorkRunDeps,
  context: JobContext,
  work: (run: Run, call: StageCall) => Promise<VerdictWithEvidence>,
  lastWords: BeforeFinish = async (_run, ended) => ended,
): Promise<void> {
  const { runs, log, progress, costs } = deps;
  const known = await readKnownRun(runId, deps, context);
  const run = await runs.start(runId);
  if (run === undefined) {
    // Its process renews it, and if that ends the run is found silent and queued again.
    if ((await runs.get(runId))?.state === 'running')
      log.info(
        { runId, kind: known.kind },
        'Run left to the process that works it',
      );
    return;
  }
  // Told to stop while nobody worked it.
  if (run.cancelRequested) return runs.markCancelled(runId);
  const delivery = openDelivery(run, deps, context, lastWords);
  const { about, ageMs } = delivery;
  const { attempts } = run;
  if (attempts > 1)
    log.info(
      { ...about, attempts, ageMs: ageMs() },
      'Run taken over, or tried again',
    );
  if (await delivery.endsProcesses(known)) return;
  const cancel = new AbortController();
  const signal = AbortSignal.any([context.signal, cancel.signal]);
  const call: StageCall = {
    signal,
    onProgress: (lines) => progress.report(runId, lines),
  };
  const timers = [
    setInterval(() => void renew(runId, deps, cancel), HEARTBEAT_MS),
    setInterval(() => void delivery.tell(), deps.tellEveryMs ?? TELL_EVERY_MS),
  ];
  try {
    const workAndTell = async () =>
      delivery.conclude(await work(run, call), signal);
    const { verdict, evidence } = await inRun(runId, () =>
      costs.charge(runId, workAndTell),
    );
    await progress.settle(runId);
    await costs.flush();
    await runs.finish(runId, verdict, evidence);
    log.info({ ...about, verdict, tookMs: ageMs() }, 'Run finished');
  } catch (error) {
    if (cancel.signal.aborted) await runs.markCancelled(runId);
    else if (!context.signal.aborted) await delivery.settleFailure(error);
    // This process is stopping: another goes on with the run, unless it was cancelled at
    // the same moment.
    else if ((await runs.heartbeat(runId)).cancelRequested)
      await runs.markCancelled(runId);
    else {
      await runs.giveBack(runId);
      throw error;
    }
  } finally {
    for (const timer of timers) clearInterval(timer);
  }
}

/** What becomes of a run that this process has begun to work. */
function openDelivery(
  run: Run,
  deps: WorkRunDeps,
  context: JobContext,
  lastWords: BeforeFinish,
) {
  const { runs, log } = deps;
  const { runId, kind, subject } = run;
  const { attempt } = context;
  /** For log lines. */
  const about = { runId, kind, subject };
  /** Since its first delivery. */
  const ageMs = () => Date.now() - Date.parse(run.startedAt ?? run.queuedAt);

  async function conclude(
    ended: VerdictWithEvidence,
    signal: AbortSignal,
    hasFailed = false,
  ) {
    try {
      return await lastWords(run, ended, signal);
    } catch (error) {
      if (!hasFailed && !(error instanceof PermanentError)) throw error;
      log.warn(
        { ...about, err: error },
        'The end of a run could not be reported',
      );
      const evidence = {
        ...ended.evidence,
        reportProblem: describeError(error),
      };
      return { verdict: worst([ended.verdict, 'incomplete']), evidence };
    }
  }

  async function fail(
    verdict: Verdict,
    error: ReturnType<typeof describeError>,
  ) {
    const signal = AbortSignal.any([
      context.signal,
      AbortSignal.timeout(LAST_WORDS_MS),
    ]);
    const ended = await conclude(
      { verdict, evidence: { error } },
      signal,
      true,
    );
    await runs.finish(runId, ended.verdict, ended.evidence);
  }

  return {
    about,
    ageMs,
    conclude,
    /** How far the run is, in the lines that every view shows. */
    async tell() {
      const progress = (await deps.progress.read(runId)).map(
        ({ label, done, total, unit, note }) => {
          const counted =
            total === undefined
              ? `${done} ${unit}`
              : `${done} of ${total} ${unit}`;
          return `${label}: ${counted}${note === undefined ? '' : `, ${note}`}`;
        },
      );
      log.info({ ...about, tookMs: ageMs(), progress }, 'Run goes on');
    },
    /**
     * Whether the run was ended instead of being worked once more: its job took one
     * process after the other.
     */
    async endsProcesses(known: Run) {
      const deaths = await countDeaths(known, deps);
      if (deaths < DEATHS_MAX && run.attempts <= DELIVERIES_MAX) return false;
      const message =
        deaths < DEATHS_MAX
          ? `its job ended ${DELIVERIES_MAX} times without a result`
          : `its job ended ${deaths} processes in a row at the same place`;
      log.error({ ...about, deaths }, 'Run delivered too often');
      await fail('failed', { code: 'DELIVERED_TOO_OFTEN', message });
      return true;
    },
    /**
     * Gives the job back to the queue where the error may pass, else records what was
     * wrong.
     */
    async settleFailure(thrown: unknown) {
      const reason = errorLine(thrown);
      // Another worker has the same work in hand: it settles what it works, and a run
      // left alone is queued again.
      if (thrown instanceof FencedError)
        return log.info(
          { ...about, reason },
          'Run left to the worker that took it over',
        );
      const sinceMs = ageMs();
      if (isTriedAgain(thrown, runId, attempt)) {
        await runs
          .giveBack(runId, { hasTried: errorCode(thrown) !== 'LIST_BUSY' })
          .catch(() => undefined);
        // Until when a service asked to be left alone.
        const notBefore =
          thrown.retryAfterMs &&
          new Date(Date.now() + thrown.retryAfterMs).toISOString();
        log.warn(
          { ...about, sinceMs, attempt, notBefore, reason },
          'Run is tried again',
        );
        throw thrown;
      }
      log.error(
        { ...about, err: thrown, sinceMs },
        'Run ended without its result',
      );
      away.delete(runId);
      const mayPass =
        thrown instanceof RetryableError &&
        !(thrown instanceof UnreachableError);
      await fail(mayPass ? 'incomplete' : 'failed', describeError(thrown));
    },
  };
}

/**
 * An answer that no machine can take must not end one process after the other. A kill
 * from outside looks the same, so only deaths in a row count, at the same progress, of
 * processes that had lived long enough to get further.
 * @param known the run as it was found, before this delivery started it
 * @returns how many processes in a row ended at this place, this one's predecessor
 *   included
 */
export async function countDeaths(
  { runId, state, heartbeatAt, startedAt, queuedAt, params }: Run,
  {
    runs,
    progress,
  }: Pick<JobDeps, 'runs'> & {
    readonly progress: Pick<JobDeps['progress'], 'read'>;
  },
): Promise<number> {
  // A process that stops in order, or fails, gives the run back: it has no heartbeat then.
  if (state !== 'running' || heartbeatAt === null) return 0;
  const { deliveredAt: noted } = params;
  const deliveredAt =
    typeof noted === 'string' ? noted : (startedAt ?? queuedAt);
  const livedMs = Date.parse(heartbeatAt) - Date.parse(deliveredAt);
  const lines = JSON.stringify(await progress.read(runId));
  const diedAt = createHash('sha256').update(lines).digest('hex').slice(0, 16);
  const before =
    params['diedAt'] === diedAt ? Number(params['deaths'] ?? 0) : 0;
  const deaths = livedMs < LIFE_MS_MIN ? before : before + 1;
  await runs.keep(runId, {
    deaths,
    diedAt,
    deliveredAt: new Date().toISOString(),
  });
  return deaths;
}

/**
 * @throws where no such run is known, or it asks another source: nobody may take its job
 *   for done
 */
export async function readKnownRun(
  runId: string,
  deps: WorkRunDeps,
  context: JobContext,
): Promise<Run> {
  const { runs, source, log } = deps;
  const { attempt } = context;
  const run = await runs.get(runId);
  if (run === undefined) {
    log.error(
      { runId, attempt },
      'Job of a run that this mirror does not know',
    );
    const message =
      `Cannot work run ${runId}: this mirror does not know it; look whether its ` +
      'database was restored from a backup';
    const details = { code: 'RUN_UNKNOWN', meta: { runId } };
    if (attempt >= UNKNOWN_RETRIES_MAX)
      throw new PermanentError(message, details);
    throw new RetryableError(message, {
      ...details,
      retryAfterMs: REFUSED_RETRY_MS,
    });
  }
  if (run.sourceUrl !== null && run.sourceUrl !== source?.url)
    throw otherSource(`run ${runId}`, run.sourceUrl, source?.url);
  return run;
}

/** Another worker takes the job. */
export function otherSource(
  what: string,
  wanted: string,
  own: string | undefined,
): RetryableError {
  const message =
    `Cannot work ${what}: it asks ${wanted}, this process ${own ?? 'no source'}; ` +
    'start workers with the same SOURCE_URL';
  const meta = { wanted, own: own ?? null };
  return new RetryableError(message, {
    code: 'OTHER_SOURCE',
    meta,
    retryAfterMs: REFUSED_RETRY_MS,
  });
}

async function renew(
  runId: string,
  deps: WorkRunDeps,
  cancel: AbortController,
): Promise<void> {
  try {
    if ((await deps.runs.heartbeat(runId)).cancelRequested)
      cancel.abort(
        new PermanentError(`Run ${runId} was cancelled`, { code: 'CANCELLED' }),
      );
  } catch (error) {
    // The work itself meets the same database and says what is wrong with it.
    deps.log.debug({ err: error, runId }, 'Run could not be renewed');
  }
}

function isTriedAgain(
  error: unknown,
  runId: string,
  attempt: number,
): error is RetryableError {
  if (!(error instanceof RetryableError)) return false;
  // Another run reads this list: however long that takes, ours comes after it.
  if (errorCode(error) === 'LIST_BUSY') return true;
  // The source was asked several times already, with growing waits: retries do not
  // multiply over layers.
  if (typeof error.meta['attempts'] === 'number') return false;
  return error instanceof UnreachableError
    ? awayMs(runId) < UNREACHABLE_MAX_MS
    : attempt < RETRIES_MAX;
}

/** Since when, and when last, a service was away for a run that is worked here. */
const away = new Map<
  string,
  { readonly sinceMs: number; readonly lastMs: number }
>();

/**
 * How long a service has been away: not since the run began, but without a try that got
 * further.
 */
function awayMs(runId: string): number {
  const nowMs = performance.now();
  const known = away.get(runId);
  const sinceMs =
    known && nowMs - known.lastMs <= AWAY_FORGOTTEN_MS ? known.sinceMs : nowMs;
  away.set(runId, { sinceMs, lastMs: nowMs });
  return nowMs - sinceMs;
}

/**
 * An error as evidence: code, message with its cause, values; `unreachable` decides the
 * exit code, `sourceAway` whether the night is tried again.
 */
export function describeError(
  error: unknown,
): Readonly<Record<string, unknown>> {
  const isOurs =
    error instanceof RetryableError || error instanceof PermanentError;
  return {
    code: errorCode(error),
    message: errorLine(error),
    ...(isOurs ? { meta: error.meta } : {}),
    ...(error instanceof UnreachableError ? { unreachable: true } : {}),
    ...(isSourceAway(error) ? { sourceAway: true } : {}),
  };
}
