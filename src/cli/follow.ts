/** Enqueues runs and follows them to their verdicts; works them here where no worker is running. */
import { setTimeout as sleep } from 'node:timers/promises';
import { enqueueRun } from '../../jobs/enqueue.ts';
import type { ProgressLine } from '../../jobs/job.ts';
import type { App } from '../app/app.ts';
import type { Run } from '../warehouse/run-store.ts';
import type { CommandContext } from './context.ts';

const POLL_MS = 150;
const WORKER_CHECK_MS = 2_000;

/**
 * @returns the runs as they ended, in the order given
 * @throws the signal's reason where the command was told to stop; the runs go on where a worker runs
 */
export async function followRuns(
  app: App,
  runs: readonly Run[],
  context: CommandContext,
): Promise<readonly Run[]> {
  for (const run of runs) await enqueueRun(run, app.jobs);
  const view = new RunView(context);
  try {
    for (let checkedAtMs = -Infinity; ;) {
      if (performance.now() - checkedAtMs >= WORKER_CHECK_MS) {
        checkedAtMs = performance.now();
        // Also while following: a worker that died leaves its jobs to us.
        if (!(await app.workers.anyAlive())) app.workForce.start();
      }
      const now = await Promise.all(runs.map((run) => app.jobs.runs.get(run.runId)));
      const ended = now.filter((run): run is Run => run?.state === 'done' || run?.state === 'cancelled');
      for (const run of runs) view.show(run, await app.jobs.progress.read(run.runId));
      if (ended.length === runs.length) return ended;
      await sleep(POLL_MS, undefined, { signal: context.signal });
    }
  } finally {
    view.finish();
  }
}

/** Keeps one progress task for each line that the runs report. */
class RunView {
  readonly #context: CommandContext;
  readonly #tasks = new Map<string, ReturnType<CommandContext['progress']['task']>>();

  constructor(context: CommandContext) {
    this.#context = context;
  }

  show(run: Run, lines: readonly ProgressLine[]): void {
    for (const line of lines) {
      const key = `${run.runId} ${line.label}`;
      const task = this.#tasks.get(key) ?? this.#context.progress.task(line.label);
      this.#tasks.set(key, task);
      task.update({
        done: BigInt(line.done),
        unit: line.unit,
        ...(line.total === undefined ? {} : { total: BigInt(line.total) }),
        ...(line.note === undefined ? {} : { note: line.note }),
      });
    }
  }

  finish(): void {
    for (const task of this.#tasks.values()) task.finish();
  }
}

/** A run as a document for `--json`, the API and the report. */
export function runDocument(run: Run): Readonly<Record<string, unknown>> {
  return {
    runId: run.runId,
    kind: run.kind,
    subject: run.subject,
    state: run.state,
    verdict: run.verdict ?? null,
    queuedAt: run.queuedAt,
    startedAt: run.startedAt ?? null,
    finishedAt: run.finishedAt ?? null,
    evidence: run.evidence,
  };
}
