/** `verify`: does everything that is recorded as published or loaded agree with its sums? */
import { readFile } from 'node:fs/promises';
import type { App } from '../../app/app.ts';
import { errorCode, UsageError } from '../../core/errors.ts';
import type { VerifyRequest } from '../../runs/job.ts';
import { REPORTS_PREFIX } from '../../runs/report/report-form.ts';
import type { CommandContext, CommandResult } from '../context.ts';
import { findRun, isRunId, openMirror } from '../mirror.ts';
import { verifyHere } from '../follow/start.ts';
import { runResult } from '../run-result.ts';

export async function verify(
  options: { readonly deep: boolean; readonly against?: string },
  context: CommandContext,
): Promise<CommandResult> {
  await using app = await openMirror(context);
  const against = options.against === undefined ? undefined : await findReport(options.against, app, context);
  const task = context.progress.task('verify');
  const ended = await verifyHere(app, { isDeep: options.deep, against }, context, ([line]) => {
    if (line !== undefined) task.update(line);
  });
  task.finish(ended.verdict ?? undefined);
  return runResult(ended);
}

/** A file, a key in the object store, or the id of a nightly run. */
async function findReport(
  given: string,
  app: App,
  { signal }: CommandContext,
): Promise<VerifyRequest['against']> {
  const file = await readFile(given, 'utf8').catch(() => undefined);
  if (file !== undefined) return { text: file, where: given };
  const run = isRunId(given) ? await findRun(app.jobs, '--against', given) : undefined;
  const key = run?.evidence['report'] ?? given;
  if (typeof key === 'string' && key.startsWith(REPORTS_PREFIX)) {
    try {
      const content = await (await app.store.read(key, signal)).toArray();
      return { text: Buffer.concat(content as Buffer[]).toString('utf8'), where: key };
    } catch (error) {
      if (errorCode(error) !== 'OBJECT_MISSING') throw error;
    }
  }
  throw new UsageError([
    `--against: ${JSON.stringify(given.slice(0, 120))} is no report; give a file, a key such as runs/….json, or the id of a nightly run`,
  ]);
}
