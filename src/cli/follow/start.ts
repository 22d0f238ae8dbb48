/** Starts runs: one that does the same already is joined, and a nightly run waits for the one before it. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { App } from '../../app/app.ts';
import { closeAbandoned, findOpenNightly } from '../../runs/enqueue.ts';
import type { ReportProgress, VerifyRequest } from '../../runs/job.ts';
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
  const { log, signal, stderr } = context;
  for (let told = ''; ;) {
    const isAttended = await app.workers.anyAlive(app.jobs.source?.url);
    const going = await findOpenNightly(app.jobs, isAttended);
    if (going === undefined) {
      const { run, found } = await app.jobs.runs.order({ kind: 'nightly', subject });
      if (found === 'none') return run;
    } else if (told !== going.runId) {
      told = going.runId;
      log.info(
        { runId: going.runId, subject: going.subject, since: going.startedAt ?? going.queuedAt },
        'Waiting for another nightly run',
      );
      if (stderr.isTTY === true)
        stderr.write(
          `Waiting for nightly run ${going.runId} to end; \`${COMMAND} cancel ${going.runId}\` ends it\n`,
        );
    }
    await sleep(POLL_MS, undefined, { signal });
  }
}

/**
 * Verifies in this process: that asks no source, and no other process needs to take it over.
 * @throws the signal's reason where the command was told to stop; the run is cancelled then
 */
export async function verifyHere(
  app: App,
  { isDeep, against }: { readonly isDeep: boolean; readonly against?: VerifyRequest['against'] },
  { signal }: Pick<CommandContext, 'signal'>,
  onProgress: ReportProgress,
): Promise<Run> {
  if (!(await app.workers.anyAlive())) await closeAbandoned(app.jobs);
  const run = await app.jobs.runs.create({ kind: 'verify', subject: isDeep ? 'deep' : 'sums' });
  const context = { signal, dueMs: Date.now(), attempt: Infinity };
  try {
    await workRun(run.runId, app.jobs, context, (_run, call) =>
      app.jobs.stages.verify(
        { runId: run.runId, deep: isDeep, scope: 'whole', against },
        {
          signal: call.signal,
          onProgress: (lines) => {
            onProgress(lines);
            call.onProgress(lines);
          },
        },
      ),
    );
  } catch (error) {
    if (signal.aborted) await app.jobs.runs.markCancelled(run.runId);
    throw error;
  }
  return (await app.jobs.runs.get(run.runId)) ?? run;
}
