/** `nightly`: the scheduled run, now, and waits. `--dry-run` only tells what it would ask. */
import { openApp, type App } from '../../app/app.ts';
import { requireSource } from '../../config/environment.ts';
import { describeNightly, type NightlyPreview } from '../../runs/nightly/nightly-preview.ts';
import type { Run } from '../../runs/store/run.ts';
import { EXIT, type CommandContext, type CommandResult } from '../context.ts';
import { followRun } from '../follow/follow.ts';
import { startNight } from '../follow/start.ts';
import { runResult } from '../run-result.ts';
import { formatBytes, formatCount, formatDuration } from '../output/format.ts';

export async function nightly(
  options: { readonly dryRun: boolean },
  context: CommandContext,
): Promise<CommandResult> {
  requireSource(context.config);
  await using app = await openApp(context);
  if (options.dryRun) return await plan(app, context);
  const run = await startNight(app, 'now', context);
  await tellStart(app, run, context);
  return runResult(await followRun(app, run, context));
}

/** Settings given to this command reach only the process that works the run. */
async function tellStart(
  { workers, jobs }: App,
  { runId }: Run,
  { log, stderr }: CommandContext,
): Promise<void> {
  const isAttended = await workers.anyAlive(jobs.source?.url);
  const whose = isAttended ? '; the worker of another process works it, with its own settings' : '';
  log.info({ runId }, `Nightly run started${whose}`);
  if (stderr.isTTY === true) stderr.write(`Nightly run ${runId} started${whose}\n`);
}

async function plan(app: App, { config }: CommandContext): Promise<CommandResult> {
  const preview = await describeNightly(app.jobs, config);
  return {
    exitCode: EXIT.done,
    document: { dryRun: true, ...preview },
    text: [
      ...(preview.isFirst ? first(preview, config) : later(preview)),
      ...audits(preview),
      'Nothing was asked.',
      '',
    ].join('\n'),
  };
}

function first(
  { exports, ratePerSecond }: NightlyPreview,
  { sourcePageSize }: CommandContext['config'],
): readonly string[] {
  return [
    'How much cannot be said yet: this mirror does not know the lists. `ledger-mirror sync all` reads them; then this command gives the number.',
    `The first nightly run asks, at most ${ratePerSecond} requests a second:`,
    `  lists     every page (${formatCount(sourcePageSize)} rows each)`,
    `  exports   one or more for each party listed${exports.due > 0 ? `; ${formatCount(exports.due)} are chosen` : ''}`,
  ];
}

function audits({ audits: { segments, bytes } }: NightlyPreview): readonly string[] {
  if (segments === 0) return [];
  const size = formatBytes(bytes);
  return [
    `  audit     about ${formatCount(segments)} closed segments once more, with these exports: ${size} of CSV`,
  ];
}

function later({ lists, exports, requests, seconds, ratePerSecond }: NightlyPreview): readonly string[] {
  const { asked, due, quarantined, notDue } = exports;
  return [
    `Would ask the source about ${formatCount(requests)} requests, which should take about ${formatDuration(seconds * 1000)} at ${ratePerSecond} a second:`,
    `  lists     ${formatCount(lists.requests)} (${lists.known})`,
    `  exports   ${formatCount(asked)} of ${formatCount(due)} parties due` +
      (quarantined > 0 ? `, ${formatCount(quarantined)} of them quarantined before` : '') +
      (notDue > 0 ? `; ${formatCount(notDue)} idle ones wait for another nightly run` : ''),
  ];
}
