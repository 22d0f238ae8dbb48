/** `verify`: does everything that is recorded as published or loaded agree with its sums? */
import { openApp } from '../../app/app.ts';
import { exitCodeOf, type CommandContext, type CommandResult } from '../context.ts';
import { runDocument, updateOf, verifyHere } from '../follow.ts';
import { runSummary } from '../summary.ts';

export async function verify(
  options: { readonly deep: boolean },
  context: CommandContext,
): Promise<CommandResult> {
  await using app = await openApp(context);
  const task = context.progress.task('verify');
  const ended = await verifyHere(app, { isDeep: options.deep }, context, ([line]) => {
    if (line !== undefined) task.update(updateOf(line));
  });
  task.finish(ended.verdict);
  return {
    exitCode: exitCodeOf(ended.verdict, ended.evidence),
    document: runDocument(ended),
    text: runSummary(runDocument(ended)),
  };
}
