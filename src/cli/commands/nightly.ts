/** `nightly`: the scheduled run, now, and waits. `--dry-run` only tells what it would ask. */
import { openApp } from '../../app/app.ts';
import { requireSource } from '../../config/environment.ts';
import { describeNightly, type NightlyPreview } from '../../runs/nightly/nightly-preview.ts';
import { runResult, type Handler } from '../context.ts';
import { followRun, startNight } from '../follow.ts';
import { formatCount, formatDuration } from '../output/format.ts';

export const nightly: Handler<{ dryRun: boolean }> = async (options, context) => {
  const { config, notices } = context;
  requireSource(config);
  await using app = await openApp(context);
  if (options.dryRun) {
    const preview = await describeNightly(app.jobs, config);
    return { document: { dryRun: true, ...preview }, text: describePlan(preview, config.sourcePageSize) };
  }
  const run = await startNight(app, 'now', context);
  const { runId } = run;
  // Settings given to this command reach only the process that works the run.
  if (await app.workers.anyAlive(app.jobs.source?.url))
    notices.warn(
      { runId },
      'Nightly run started; the worker of another process works it, with its own settings',
    );
  // `cancel` needs the id.
  else notices.info({ runId }, 'Nightly run started');
  return runResult(await followRun(app, run, context));
};

function describePlan(preview: NightlyPreview, pageSize: number): string {
  const { isFirst, lists, exports, requests, seconds, ratePerSecond } = preview;
  const { asked, due, quarantined, notDue } = exports;
  const lines = isFirst
    ? [
        'How much cannot be said yet: this mirror does not know the lists. `ledger-mirror sync all` reads them; then this command gives the number.',
        `The first nightly run asks, at most ${ratePerSecond} requests a second:`,
        `  lists     every page (${formatCount(pageSize)} rows each)`,
        `  exports   one or more for each party listed${due > 0 ? `; ${formatCount(due)} are chosen` : ''}`,
      ]
    : [
        `Would ask the source about ${formatCount(requests)} requests, which should take about ${formatDuration(seconds * 1000)} at ${ratePerSecond} a second:`,
        `  lists     ${formatCount(lists.requests)} (only what is new)`,
        `  exports   ${formatCount(asked)} of ${formatCount(due)} parties due` +
          (quarantined > 0 ? `, ${formatCount(quarantined)} of them quarantined before` : '') +
          (notDue > 0 ? `; ${formatCount(notDue)} idle ones wait for another nightly run` : ''),
      ];
  return [...lines, 'Nothing was asked.', ''].join('\n');
}
