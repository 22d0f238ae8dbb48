/** A run below the nightly run: started once, followed until its verdict. */
import { setTimeout as sleep } from 'node:timers/promises';
import { RetryableError } from '../../core/errors.ts';
import { enqueueRun } from '../enqueue.ts';
import { PRIORITY, type JobDeps, type StageCall } from '../job.ts';
import { isOver } from '../run-document.ts';
import type { NewRun, Run } from '../store/run.ts';

const POLL_MS = 200;
/** A job may have been lost with its queue: the queue is asked. */
const LOOK_AFTER_MS = 30_000;
/** A part that nobody has begun, or renewed, for this long: no worker takes it. */
const NO_PROGRESS_MS = 600_000;

/** Starts the run below this one, or finds it, and waits until it has its verdict, or until nobody works it. */
export async function workChild(
  parent: Run,
  wanted: Pick<NewRun, 'kind' | 'subject'>,
  deps: JobDeps,
  { signal, onProgress }: StageCall,
): Promise<Run> {
  const child = await deps.runs.create({ ...wanted, parentRunId: parent.runId });
  let seen = '';
  let movedAtMs = performance.now();
  for (let lookedAtMs = -Infinity; ;) {
    const now = await deps.runs.get(child.runId);
    if (now === undefined)
      throw new RetryableError(`Cannot follow run ${child.runId}: it is gone`, { code: 'RUN_GONE' });
    if (isOver(now)) {
      onProgress(await deps.progress.read(child.runId));
      return now;
    }
    const sign = `${now.attempts} ${now.heartbeatAt}`;
    if (sign !== seen) movedAtMs = performance.now();
    seen = sign;
    if (performance.now() - movedAtMs > NO_PROGRESS_MS) await giveUp(now, deps);
    if (performance.now() - lookedAtMs > LOOK_AFTER_MS) {
      lookedAtMs = performance.now();
      await enqueueRun(now, deps, PRIORITY.nightly);
    }
    const lines = await deps.progress.read(child.runId);
    if (lines.length > 0) onProgress(lines);
    await sleep(POLL_MS, undefined, { signal });
  }
}

async function giveUp(child: Run, { runs, log }: JobDeps): Promise<void> {
  const error = {
    code: 'NO_PROGRESS',
    message: 'no worker has taken it for long; look whether workers are running',
  };
  log.warn(
    { runId: child.runId, kind: child.kind, subject: child.subject },
    'Part of the nightly run given up: nobody works it',
  );
  await runs.finish(child.runId, 'incomplete', { error });
}
