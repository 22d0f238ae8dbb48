/** `load`: brings published objects into the warehouse and the lake, without the source. */
import { openApp } from '../../app/app.ts';
import type { CommandContext, CommandResult } from '../context.ts';
import { followRun } from '../follow/follow.ts';
import { joinOrCreate } from '../follow/start.ts';
import { runResult } from '../run-result.ts';

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
  return runResult(await followRun(app, run, context));
}
