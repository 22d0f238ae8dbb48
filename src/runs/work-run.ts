/**
 * Wraps every job that carries out a run, and ensures that the run gets exactly one
 * verdict, however often its job is delivered.
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
/** How often a run logs its progress. */
const TELL_EVERY_MS = 60_000;
/**
 * How long publishing the report of a failed run may take. After that, the run ends
 * without one.
 */
const LAST_WORDS_MS = 60_000;
/**
 * Maximum number of deliveries of one run's job, crashes included. They are counted in
 * Postgres, because a queue may lose its data.
 */
const DELIVERIES_MAX = 100;
/**
 * Number of consecutive processes that may crash at the same point of a run before it is
 * ended.
 */
export const DEATHS_MAX = 3;
/** The crash of a process that lived for less than this says nothing about the work. */
const LIFE_MS_MIN = 3_000;
/** Maximum number of attempts at work that fails with a retryable error. */
const RETRIES_MAX = 6;
/**
 * Maximum number of retries for a job whose run is not in the database. Restoring a
 * backup can still bring the run back.
 */
const UNKNOWN_RETRIES_MAX = 20;
const REFUSED_RETRY_MS = 2_000;
/** How long a service may be unreachable before the run ends. */
const UNREACHABLE_MAX_MS = 60_000;
/**
 * How long after its last failure an outage is forgotten. This exceeds the longest pause
 * between two attempts, so the work must have made progress in between.
 */
const AWAY_FORGOTTEN_MS = 90_000;

export interface WorkRunDeps extends Pick<
  JobDeps,
  'runs' | 'source' | 'log' | 'progress' | 'costs'
> {
  readonly tellEveryMs?: number;
}

/**
 * Starts or resumes the run, renews its heartbeat while `work` runs, reports its
 * progress, and records its verdict.
 * @throws retryable errors, which make the queue deliver the job again
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
    // Another process is working on the run. If it crashes, the heartbeat stops and the
    // run is queued again.
    if ((await runs.get(runId))?.state === 'running')
      log.info(
        { runId, kind: known.kind },
        'The run is left to the process that is working on it',
      );
    return;
  }
  // The run was cancelled while no process was working on it.
  if (run.cancelRequested) return runs.markCancelled(runId);
  const delivery = openDelivery(run, deps, context, lastWords);
  const { about, ageMs } = delivery;
  const { attempts } = run;
  if (attempts > 1)
    log.info(
      { ...about, attempts, ageMs: ageMs() },
      'The run is taken over, or tried again',
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
    // This process is shutting down, so another will resume the run, unless it was
    // cancelled at the same moment.
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

/** Reports and settles a run that this process has begun to work on. */
function openDelivery(
  run: Run,
  deps: WorkRunDeps,
  context: JobContext,
  lastWords: BeforeFinish,
) {
  const { runs, log } = deps;
  const { runId, kind, subject } = run;
  const { attempt } = context;
  /** Fields for log lines. */
  const about = { runId, kind, subject };
  /** Milliseconds since the first delivery. */
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
    /** Logs the run's progress, in the same lines that every view shows. */
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
      log.info({ ...about, tookMs: ageMs(), progress }, 'Run is still working');
    },
    /**
     * Ends the run if its job has already crashed several processes.
     * @returns whether the run was ended instead of being resumed
     */
    async endsProcesses(known: Run) {
      const deaths = await countDeaths(known, deps);
      if (deaths < DEATHS_MAX && run.attempts <= DELIVERIES_MAX) return false;
      const message =
        deaths < DEATHS_MAX
          ? `its job ended ${DELIVERIES_MAX} times without a result`
          : `its job ended ${deaths} processes in a row at the same point`;
      log.error({ ...about, deaths }, 'Run delivered too often');
      await fail('failed', { code: 'DELIVERED_TOO_OFTEN', message });
      return true;
    },
    /**
     * Returns the job to the queue if the error may be transient; otherwise records the
     * failure.
     */
    async settleFailure(thrown: unknown) {
      const reason = errorLine(thrown);
      // Another worker is doing the same work and will settle the run. If that worker
      // stops, the run is queued again.
      if (thrown instanceof FencedError)
        return log.info(
          { ...about, reason },
          'The run is left to the worker that took it over',
        );
      const sinceMs = ageMs();
      if (isTriedAgain(thrown, runId, attempt)) {
        await runs
          .giveBack(runId, { hasTried: errorCode(thrown) !== 'LIST_BUSY' })
          .catch(() => undefined);
        // The service asked not to be called before then.
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
        'The run ended without a result',
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
 * Counts the consecutive processes that crashed at this point, so that a response that no
 * machine can process does not bring down one process after another. A kill from outside
 * looks the same, so a crash counts only if the run made no progress although the process
 * had lived long enough to make some.
 * @param known the run as it was before this delivery started it
 * @returns the number of consecutive crashes at this point, including that of the
 *   previous process
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
  // A process that stops cleanly or fails hands the run back, which clears its heartbeat.
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
 * Reads the run of a job.
 * @throws if the run is unknown or belongs to another source, so that its job is not
 *   marked as done
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
      `Cannot work run ${runId}: this mirror does not know it; check ` +
      'whether the database was restored from a backup';
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

/** Returns the error that makes the queue pass the job to another worker. */
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
    // The work uses the same database and will report what is wrong with it.
    deps.log.debug(
      { err: error, runId },
      'The heartbeat of a run could not be renewed',
    );
  }
}

function isTriedAgain(
  error: unknown,
  runId: string,
  attempt: number,
): error is RetryableError {
  if (!(error instanceof RetryableError)) return false;
  // Another run is reading this list. Ours waits its turn, however long that takes.
  if (errorCode(error) === 'LIST_BUSY') return true;
  // The request was already retried with backoff; retries must not multiply across
  // layers.
  if (typeof error.meta['attempts'] === 'number') return false;
  return error instanceof UnreachableError
    ? awayMs(runId) < UNREACHABLE_MAX_MS
    : attempt < RETRIES_MAX;
}

/** For each run of this process, when a service first and last failed to respond. */
const away = new Map<
  string,
  { readonly sinceMs: number; readonly lastMs: number }
>();

/**
 * Returns how long a service has been unreachable, counted from the first failure since
 * the work last made progress.
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
 * Describes an error as evidence: its code, its message with the cause, and its values.
 * `unreachable` determines the exit code, and `sourceAway` whether the night is retried.
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
