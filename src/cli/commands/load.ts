/** `load` and `verify`: from published objects to warehouse and lake, and whether all of it agrees with its sums. */
import { readFile } from 'node:fs/promises';
import { openApp, type App } from '../../app/app.ts';
import { errorCode, UsageError } from '../../core/errors.ts';
import type { VerifyRequest } from '../../runs/job.ts';
import { REPORTS_PREFIX } from '../../runs/report-form.ts';
import { runResult, type CommandContext, type Handler } from '../context.ts';
import { followRun, joinOrCreate, verifyHere } from '../follow.ts';
import { findRun, isRunId, openMirror } from '../mirror.ts';

export const load: Handler<{ all: boolean }> = async (options, context) => {
  await using app = await openApp(context);
  const params = { rebuild: options.all };
  const { run } = await joinOrCreate(app, { kind: 'load', subject: 'warehouse and lake', params });
  return runResult(await followRun(app, run, context));
};

export const verify: Handler<{ deep: boolean; against?: string }> = async ({ deep, against }, context) => {
  await using app = await openMirror(context);
  const report = against === undefined ? undefined : await findReport(against, app, context);
  return runResult(await verifyHere(app, { deep, against: report }, context));
};

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
