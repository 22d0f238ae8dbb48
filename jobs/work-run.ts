/** The frame around every job that works a run: one verdict, however often the job is delivered. */
import {
  errorCode,
  errorLine,
  FencedError,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../src/core/errors.ts';
import type { Log } from '../src/core/log.ts';
import type { Outcome } from '../src/core/verdict.ts';
import type { Run, RunStore } from '../src/runs/store/run-store.ts';
import type { JobContext, JobDeps } from './job.ts';

const HEARTBEAT_MS = 3_000;
/** Deliveries of one run's job, crashes included. Counted in Postgres, whatever the queue remembers. */
const DELIVERIES_MAX = 100;
/** Tries of work that failed with an error that may pass. */
const RETRIES_MAX = 6;
/** A service that could not be reached at all for this long ends the run. */
export const UNREACHABLE_MAX_MS = 60_000;

/** Thrown into the work when the run was told to stop. */
class RunCancelled extends PermanentError {
  constructor(runId: string) {
    super(`Run ${runId} was cancelled`, { code: 'CANCELLED' });
  }
}

export interface WorkRunDeps {
  readonly runs: RunStore;
  readonly progress: Pick<JobDeps['progress'], 'settle'>;
  readonly costs: Pick<JobDeps['costs'], 'charge'>;
  readonly log: Log;
}

/**
 * Starts or resumes the run, renews it while `work` runs, and records how it ended.
 * @throws what may pass, so that the queue delivers the job again
 */
export async function workRun(
  runId: string,
  deps: WorkRunDeps,
  context: JobContext,
  work: (run: Run, signal: AbortSignal) => Promise<Outcome>,
): Promise<void> {
  const run = await deps.runs.start(runId);
  if (run === undefined) return;
  if (run.cancelRequested) {
    // Told to stop while nobody worked it.
    await deps.runs.markCancelled(runId);
    return;
  }
  if (run.attempts > DELIVERIES_MAX) {
    const error = {
      code: 'DELIVERED_TOO_OFTEN',
      message: `its job ended ${DELIVERIES_MAX} times without a result`,
    };
    await deps.runs.finish(runId, 'failed', { error });
    return;
  }
  const cancel = new AbortController();
  const signal = AbortSignal.any([context.signal, cancel.signal]);
  const heartbeat = setInterval(() => {
    void renew(runId, deps, cancel);
  }, HEARTBEAT_MS);
  try {
    const outcome = await deps.costs.charge(runId, () => work(run, signal));
    await deps.progress.settle(runId);
    await deps.runs.finish(runId, outcome.verdict, outcome.evidence);
    deps.log.info({ runId, kind: run.kind, subject: run.subject, verdict: outcome.verdict }, 'Run finished');
  } catch (error) {
    if (cancel.signal.aborted) await deps.runs.markCancelled(runId);
    else if (context.signal.aborted) await letGo(runId, error, deps);
    else await settleFailure(run, error, deps, context);
  } finally {
    clearInterval(heartbeat);
  }
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
async function settleFailure(
  run: Run,
  error: unknown,
  deps: WorkRunDeps,
  context: JobContext,
): Promise<void> {
  // Another worker has the same work in hand: it settles what it works, and a run left alone is queued again.
  if (error instanceof FencedError) return;
  const sinceMs = Date.now() - Date.parse(run.startedAt ?? run.queuedAt);
  const mayPass = error instanceof RetryableError;
  const isLong =
    error instanceof UnreachableError ? sinceMs >= UNREACHABLE_MAX_MS : context.attempt >= RETRIES_MAX;
  // Another run walks this list: however long that takes, ours comes after it.
  const isOver = errorCode(error) !== 'WALK_BUSY' && (isLong || wasAskedAgain(error));
  if (mayPass && !isOver) throw error;
  deps.log.error(
    { err: error, runId: run.runId, kind: run.kind, subject: run.subject },
    'Run ended without its result',
  );
  const verdict = mayPass && !(error instanceof UnreachableError) ? 'incomplete' : 'failed';
  await deps.runs.finish(run.runId, verdict, { error: describeError(error) });
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
