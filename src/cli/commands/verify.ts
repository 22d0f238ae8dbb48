/** `verify`: does everything that is recorded as published or loaded agree with its sums? */
import { openApp } from '../../app/app.ts';
import { workRun } from '../../../jobs/work-run.ts';
import { exitCodeOf, type CommandContext, type CommandResult } from '../context.ts';
import { runDocument } from '../follow.ts';
import { runSummary } from '../summary.ts';

export async function verify(
  options: { readonly deep: boolean },
  context: CommandContext,
): Promise<CommandResult> {
  await using app = await openApp(context);
  const run = await app.jobs.runs.create({ kind: 'verify', subject: options.deep ? 'deep' : 'sums' });
  const task = context.progress.task('verify');
  // Worked here: it asks no source, and no other process needs to take it over.
  await workRun(
    run.runId,
    app.jobs,
    { signal: context.signal, dueMs: Date.now(), attempt: Infinity },
    (_run, signal) =>
      app.jobs.stages.verify(
        { runId: run.runId, deep: options.deep },
        {
          signal,
          onProgress: ([line]) => {
            if (line === undefined) return;
            const total = line.total === undefined ? {} : { total: BigInt(line.total) };
            task.update({
              done: BigInt(line.done),
              unit: line.unit,
              ...total,
              ...(line.note === undefined ? {} : { note: line.note }),
            });
          },
        },
      ),
  );
  const ended = (await app.jobs.runs.get(run.runId)) ?? run;
  task.finish(ended.verdict);
  return {
    exitCode: exitCodeOf(ended.verdict, ended.evidence),
    document: runDocument(ended),
    text: runSummary(runDocument(ended)),
  };
}
