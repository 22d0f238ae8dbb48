/** `verify`: does everything that is recorded as published or loaded agree with its sums? */
import { openApp } from '../../app/app.ts';
import { exitCodeOf, type CommandContext, type CommandResult } from '../context.ts';
import { runDocument, verifyHere } from '../follow.ts';
import { runSummary } from '../summary.ts';

export async function verify(
  options: { readonly deep: boolean },
  context: CommandContext,
): Promise<CommandResult> {
  await using app = await openApp(context);
  const task = context.progress.task('verify');
  const ended = await verifyHere(app, { isDeep: options.deep }, context, ([line]) => {
    if (line === undefined) return;
    const total = line.total === undefined ? {} : { total: BigInt(line.total) };
    task.update({
      done: BigInt(line.done),
      unit: line.unit,
      ...total,
      ...(line.note === undefined ? {} : { note: line.note }),
    });
  });
  task.finish(ended.verdict);
  return {
    exitCode: exitCodeOf(ended.verdict, ended.evidence),
    document: runDocument(ended),
    text: runSummary(runDocument(ended)),
  };
}
