/** `load`: brings published objects into the warehouse and the lake, without the source. */
import { openApp } from '../../app/app.ts';
import { exitCodeOf, type CommandContext, type CommandResult } from '../context.ts';
import { followRuns, joinOrCreate } from '../follow.ts';
import { runSummary } from '../output/summary.ts';
import { runDocument } from '../../runs/run-document.ts';

export async function load(
  options: { readonly all: boolean },
  context: CommandContext,
): Promise<CommandResult> {
  await using app = await openApp(context);
  const { run } = await joinOrCreate(app, {
    kind: 'load',
    subject: 'warehouse and lake',
    params: { rebuild: options.all },
  });
  const [ended] = await followRuns(app, [run], context);
  if (ended === undefined) throw new Error(`run ${run.runId} ended without a record`);
  return {
    exitCode: exitCodeOf(ended.verdict, ended.evidence),
    document: runDocument(ended),
    text: runSummary(runDocument(ended)),
  };
}
