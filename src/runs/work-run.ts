/** The frame around every job that works a run: one verdict, however often the job is delivered. */
import {
  errorCode,
  errorLine,
  FencedError,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../core/errors.ts';
import { inRun } from '../core/log.ts';
import type { VerdictWithEvidence } from '../core/verdict.ts';
import { countDeaths, DEATHS_MAX } from './deaths.ts';
import type { JobContext, JobDeps, StageCall } from './job.ts';
import type { Run } from './store/run.ts';

const HEARTBEAT_MS = 3_000;
/** A run of any length says so often how far it is. */
const TELL_EVERY_MS = 60_000;
/** For what is said of a run that failed: it is ended all the same. */
const LAST_WORDS_MS = 60_000;
/** Deliveries of one run's job, crashes included. Counted in Postgres, whatever the queue remembers. */
const DELIVERIES_MAX = 100;
/** Tries of work that failed with an error that may pass. */
const RETRIES_MAX = 6;
/** A job of a run that no database of this mirror knows: restored from a backup, it may still appear. */
const UNKNOWN_RETRIES_MAX = 20;
const REFUSED_RETRY_MS = 2_000;
/** A service that could not be reached at all for this long ends the run. */
export const UNREACHABLE_MAX_MS = 60_000;

/** Thrown into the work when the run was told to stop. */
class RunCancelled extends PermanentError {
  constructor(runId: string) {
    super(`Run ${runId} was cancelled`, { code: 'CANCELLED' });
  }
}

export interface WorkRunDeps extends Pick<JobDeps, 'runs' | 'source' | 'log'> {
  readonly progress: JobDeps['progress'];
  readonly costs: Pick<JobDeps['costs'], 'charge' | 'flush'>;
  readonly tellEveryMs?: number;
}

/** What is done before a run is recorded as failed; what it throws is left out. */
export type LastWords = (
  run: Run,
  failed: VerdictWithEvidence,
  signal: AbortSignal,
) => Promise<VerdictWithEvidence>;

/** A run that this process has begun to work. */
interface Delivery {
  readonly run: Run;
  readonly deps: WorkRunDeps;
  readonly context: JobContext;
  readonly lastWords: LastWords;
}

/**
 * Starts or resumes the run, renews it while `work` runs and reports its progress, and records how it ended.
 * @throws what may pass, so that the queue delivers the job again
 */
export async function workRun(
  runId: string,
  deps: WorkRunDeps,
  context: JobContext,
  work: (run: Run, call: StageCall) => Promise<VerdictWithEvidence>,
  lastWords: LastWords = async (_run, failed) => failed,
): Promise<void> {
  const { runs, log } = deps;
  const known = await readKnownRun(runId, deps, context);
  refuseOtherSource(known, deps);
  const run = await runs.start(runId);
  if (run === undefined) {
    const now = await runs.get(runId);
    // Its process renews it, and if that ends the run is found silent and queued again.
    if (now?.state === 'running')
      log.info({ runId, kind: now.kind }, 'Run left to the process that works it');
    return;
  }
  // Told to stop while nobody worked it.
  if (run.cancelRequested) return runs.markCancelled(runId);
  const { kind, subject, attempts } = run;
  if (attempts > 1)
    log.info({ runId, kind, subject, attempts, ageMs: ageMs(run) }, 'Run taken over, or tried again');
  const delivery = { run, deps, context, lastWords };
  if (await endsProcesses(known, delivery)) return;
  const cancel = new AbortController();
  const call: StageCall = {
    signal: AbortSignal.any([context.signal, cancel.signal]),
    onProgress: (lines) => deps.progress.report(runId, lines),
  };
  const heartbeat = setInterval(() => void renew(runId, deps, cancel), HEARTBEAT_MS);
  const telling = setInterval(() => void tell(run, deps), deps.tellEveryMs ?? TELL_EVERY_MS);
  try {
    const { verdict, evidence } = await inRun(runId, () => deps.costs.charge(runId, () => work(run, call)));
    await deps.progress.settle(runId);
    await deps.costs.flush();
    await runs.finish(runId, verdict, evidence);
    log.info({ runId, kind, subject, verdict, tookMs: ageMs(run) }, 'Run finished');
  } catch (error) {
    if (cancel.signal.aborted) await runs.markCancelled(runId);
    else if (context.signal.aborted) await letGo(runId, error, deps);
    else await settleFailure(delivery, error);
  } finally {
    clearInterval(heartbeat);
    clearInterval(telling);
  }
}

/** Since its first delivery. */
function ageMs(run: Run): number {
  return Date.now() - Date.parse(run.startedAt ?? run.queuedAt);
}

/** How far the run is, in the lines that every view shows. */
async function tell(run: Run, { progress, log }: WorkRunDeps): Promise<void> {
  const { runId, kind, subject } = run;
  const lines = await progress.read(runId);
  log.info(
    {
      runId,
      kind,
      subject,
      tookMs: ageMs(run),
      progress: lines.map(
        ({ label, done, total, unit, note }) =>
          `${label}: ${done}${total === undefined ? '' : ` of ${total}`} ${unit}${note === undefined ? '' : `, ${note}`}`,
      ),
    },
    'Run goes on',
  );
}

/** Records that the run failed. Last words that cannot be said keep no run from being ended. */
async function failRun(failed: VerdictWithEvidence, delivery: Delivery): Promise<void> {
  const { run, deps, context, lastWords } = delivery;
  let ended = failed;
  try {
    const signal = AbortSignal.any([context.signal, AbortSignal.timeout(LAST_WORDS_MS)]);
    ended = await lastWords(run, failed, signal);
  } catch (error) {
    const { runId, kind } = run;
    deps.log.warn({ err: error, runId, kind }, 'Nothing more could be said of a failed run');
    ended = { ...failed, evidence: { ...failed.evidence, reportProblem: describeError(error) } };
  }
  await deps.runs.finish(run.runId, ended.verdict, ended.evidence);
}

/** Whether the run was ended instead of being worked once more: its job took one process after the other. */
async function endsProcesses(known: Run, delivery: Delivery): Promise<boolean> {
  const { run, deps } = delivery;
  const deaths = await countDeaths(known, deps);
  if (deaths < DEATHS_MAX && run.attempts <= DELIVERIES_MAX) return false;
  const message =
    deaths < DEATHS_MAX
      ? `its job ended ${DELIVERIES_MAX} times without a result`
      : `its job ended ${deaths} processes in a row at the same place`;
  const { runId, kind, subject } = run;
  deps.log.error({ runId, kind, subject, deaths }, 'Run delivered too often');
  const evidence = { error: { code: 'DELIVERED_TOO_OFTEN', message } };
  await failRun({ verdict: 'failed', evidence }, delivery);
  return true;
}

/** @throws where no such run is known: nobody may take its job for done */
export async function readKnownRun(
  runId: string,
  { runs, log }: Pick<WorkRunDeps, 'runs' | 'log'>,
  { attempt }: Pick<JobContext, 'attempt'>,
): Promise<Run> {
  const run = await runs.get(runId);
  if (run !== undefined) return run;
  log.error({ runId, attempt }, 'Job of a run that this mirror does not know');
  const message = `Cannot work run ${runId}: this mirror does not know it; look whether its database was restored from a backup`;
  if (attempt >= UNKNOWN_RETRIES_MAX)
    throw new PermanentError(message, { code: 'RUN_UNKNOWN', meta: { runId } });
  throw new RetryableError(message, { code: 'RUN_UNKNOWN', meta: { runId }, retryAfterMs: REFUSED_RETRY_MS });
}

/** @throws where the run asks another source than this process: another worker takes it */
export function refuseOtherSource(run: Run, { source }: Pick<WorkRunDeps, 'source'>): void {
  if (run.sourceUrl === null || run.sourceUrl === source?.url) return;
  throw otherSource(`run ${run.runId}`, run.sourceUrl, source?.url);
}

/** The same of a schedule's job, which names its source by id. */
export function refuseOtherSchedule(what: string, sourceId: string | undefined, { source }: JobDeps): void {
  if (sourceId === undefined || sourceId === source?.id) return;
  throw otherSource(what, `source ${sourceId}`, source?.url);
}

function otherSource(what: string, wanted: string, own: string | undefined): RetryableError {
  return new RetryableError(
    `Cannot work ${what}: it asks ${wanted}, this process ${own ?? 'no source'}; start workers with the same SOURCE_URL`,
    { code: 'OTHER_SOURCE', meta: { wanted, own: own ?? null }, retryAfterMs: REFUSED_RETRY_MS },
  );
}

/**
 * This process is stopping: another goes on with the run, unless it was cancelled at the same moment.
 * @throws `error`, by which the queue learns that the job is not done
 */
async function letGo(runId: string, error: unknown, deps: WorkRunDeps): Promise<void> {
  const { cancelRequested } = await deps.runs.heartbeat(runId);
  if (cancelRequested) {
    await deps.runs.markCancelled(runId);
    return;
  }
  await deps.runs.giveBack(runId);
  throw error;
}

async function renew(runId: string, deps: WorkRunDeps, cancel: AbortController): Promise<void> {
  try {
    const { cancelRequested } = await deps.runs.heartbeat(runId);
    if (cancelRequested) cancel.abort(new RunCancelled(runId));
  } catch (error) {
    // The work itself meets the same database and says what is wrong with it.
    deps.log.debug({ err: error, runId }, 'Run could not be renewed');
  }
}

/** Gives the job back to the queue where the error may pass, else records what was wrong. */
async function settleFailure(delivery: Delivery, error: unknown): Promise<void> {
  const { run, deps, context } = delivery;
  const { runId, kind, subject } = run;
  if (error instanceof FencedError) {
    // Another worker has the same work in hand: it settles what it works, and a run left alone is queued again.
    deps.log.info(
      { runId, kind, subject, reason: errorLine(error) },
      'Run left to the worker that took it over',
    );
    return;
  }
  const sinceMs = ageMs(run);
  const mayPass = error instanceof RetryableError;
  const isAway = error instanceof UnreachableError;
  const isLong = isAway ? awayMs(runId) >= UNREACHABLE_MAX_MS : context.attempt >= RETRIES_MAX;
  // Another run reads this list: however long that takes, ours comes after it.
  const isWaiting = errorCode(error) === 'LIST_BUSY';
  const isOver = !isWaiting && (isLong || wasAskedAgain(error));
  if (mayPass && !isOver) {
    await deps.runs.giveBack(runId, { hasTried: !isWaiting }).catch(() => undefined);
    deps.log.warn(
      {
        runId,
        kind,
        subject,
        sinceMs,
        attempt: context.attempt,
        notBefore: askedFor(error),
        reason: errorLine(error),
      },
      'Run is tried again',
    );
    throw error;
  }
  deps.log.error({ err: error, runId, kind, subject, sinceMs }, 'Run ended without its result');
  away.delete(runId);
  const verdict = mayPass && !isAway ? 'incomplete' : 'failed';
  await failRun({ verdict, evidence: { error: describeError(error) } }, delivery);
}

/** The time until which a service asked to be left alone. */
function askedFor({ retryAfterMs }: RetryableError): string | undefined {
  return retryAfterMs === undefined ? undefined : new Date(Date.now() + retryAfterMs).toISOString();
}

/** Since when, and when last, a service was away for a run that is worked here. */
const away = new Map<string, { readonly sinceMs: number; readonly lastMs: number }>();
/** Longer than the longest pause between two tries: in between, the work went on. */
const AWAY_FORGOTTEN_MS = 90_000;

/** How long a service has been away: not since the run began, but without a try that got further. */
function awayMs(runId: string): number {
  const nowMs = performance.now();
  const known = away.get(runId);
  const sinceMs = known === undefined || nowMs - known.lastMs > AWAY_FORGOTTEN_MS ? nowMs : known.sinceMs;
  away.set(runId, { sinceMs, lastMs: nowMs });
  return nowMs - sinceMs;
}

/** The source was asked several times already, with growing waits: retries do not multiply over layers. */
function wasAskedAgain(error: unknown): boolean {
  return error instanceof RetryableError && typeof error.meta['attempts'] === 'number';
}

/** An error as evidence: code, message with its cause, values; `unreachable` decides the exit code. */
export function describeError(error: unknown): Readonly<Record<string, unknown>> {
  const isOurs = error instanceof RetryableError || error instanceof PermanentError;
  return {
    code: errorCode(error),
    message: errorLine(error),
    ...(isOurs ? { meta: error.meta } : {}),
    ...(error instanceof UnreachableError ? { unreachable: true } : {}),
  };
}
