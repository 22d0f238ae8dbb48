/** Starts runs: one that does the same already is joined, and a nightly run waits for the one before it. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { App } from '../../app/app.ts';
import { closeAbandoned, findOpenNightly } from '../../runs/enqueue.ts';
import type { VerifyRequest } from '../../runs/job.ts';
import type { NewRun, Run } from '../../runs/store/run.ts';
import { workRun } from '../../runs/work-run.ts';
import type { CommandContext } from '../context.ts';
import { COMMAND } from '../typed.ts';

const POLL_MS = 150;

/** A run that does the same already, of whoever's making, or a new one. */
export async function joinOrCreate(app: App, wanted: NewRun): Promise<{ run: Run; isJoined: boolean }> {
  const equal = await app.jobs.runs.findOpen(wanted);
  if (equal === undefined) return { run: await app.jobs.runs.create(wanted), isJoined: false };
  app.log.info({ runId: equal.runId, kind: equal.kind, subject: equal.subject }, 'Following an equal run');
  return { run: equal, isJoined: true };
}

/**
 * A new nightly run, once none is going: two would ask the source for the same things. Nothing is queued while it waits.
 */
export async function startNight(app: App, subject: string, context: CommandContext): Promise<Run> {
  const { log, signal } = context;
  for (let told = ''; ;) {
    const isAttended = await app.workers.anyAlive(app.jobs.source?.url);
    const going = await findOpenNightly(app.jobs, isAttended);
    if (going === undefined) {
      const { run, found } = await app.jobs.runs.order({ kind: 'nightly', subject });
      if (found === 'none') return run;
    } else if (told !== going.runId) {
      told = going.runId;
      const since = going.startedAt ?? going.queuedAt;
      const facts = { runId: told, subject: going.subject, since, endedBy: `${COMMAND} cancel ${told}` };
      log.warn(facts, 'Waiting for another nightly run');
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}

/**
 * Verifies in this process: that asks no source, and no other process needs to take it over.
 * @throws the signal's reason where the command was told to stop; the run is cancelled then
 */
export async function verifyHere(
  { jobs, workers }: App,
  request: Pick<VerifyRequest, 'deep' | 'against'>,
  { signal, progress }: Pick<CommandContext, 'signal' | 'progress'>,
): Promise<Run> {
  if (!(await workers.anyAlive())) await closeAbandoned(jobs);
  const run = await jobs.runs.create({ kind: 'verify', subject: request.deep ? 'deep' : 'sums' });
  const { runId } = run;
  const view = progress.openView();
  try {
    await workRun(runId, jobs, { signal, dueMs: Date.now(), attempt: Infinity }, (_run, call) =>
      jobs.stages.verify(
        { runId, scope: 'whole', ...request },
        {
          signal: call.signal,
          onProgress: (lines) => {
            view.show(lines);
            call.onProgress(lines);
          },
        },
      ),
    );
  } catch (error) {
    if (signal.aborted) await jobs.runs.markCancelled(runId);
    throw error;
  }
  const ended = (await jobs.runs.get(runId)) ?? run;
  view.finish(ended.verdict ?? undefined);
  return ended;
}
