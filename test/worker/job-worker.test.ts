/** When a worker says that a job of a run has ended, with queues that the test works. */
import { expect, test } from 'vitest';
import type { WorkedJob } from '../../src/queue/queue-worker.ts';
import type { Queues } from '../../src/queue/queues.ts';
import { JobWorker } from '../../src/worker/job-worker.ts';

type Handler = (job: WorkedJob, signal: AbortSignal) => Promise<void>;

const SIGNAL = AbortSignal.timeout(10_000);
const JOB = { id: '1', name: 'unknown-job', dueMs: 0, attempt: 1 };

/** A worker, and what it does with a job of a queue. */
function openWorker(): { worker: JobWorker; handle: Handler } {
  let handle: Handler | undefined;
  const queues = {
    work: (_queue: string, _concurrency: number, handler: Handler) => {
      handle = handler;
    },
  } as unknown as Queues;
  const options = { queues } as unknown as ConstructorParameters<
    typeof JobWorker
  >[0];
  const worker = new JobWorker({ ...options, jobs: {} as never });
  worker.start(['sync']);
  if (handle === undefined) throw new Error('no queue is worked');
  return { worker, handle };
}

test('the end of a job is told to those who wait for its run, even if it failed', async () => {
  const { worker, handle } = openWorker();
  const ended = worker.endOfJob('run-1', SIGNAL);
  await expect(
    handle({ ...JOB, data: { runId: 'run-1' } }, SIGNAL),
  ).rejects.toMatchObject({ code: 'JOB_UNKNOWN' });
  await ended;
});

test('the end of a job of another run, or of none, is not', async () => {
  const { worker, handle } = openWorker();
  const stop = new AbortController();
  const ended = worker.endOfJob('run-1', stop.signal);
  for (const data of [{ runId: 'run-2' }, {}])
    await expect(handle({ ...JOB, data }, SIGNAL)).rejects.toMatchObject({
      code: 'JOB_UNKNOWN',
    });
  stop.abort();
  await expect(ended).rejects.toMatchObject({ name: 'AbortError' });
});
