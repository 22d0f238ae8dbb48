/** `nightly`: the scheduled run, now, and waits. `--dry-run` only tells what it would ask. */
import { needSource, openApp, type App } from '../../app/app.ts';
import { previewNight } from '../../runs/nightly-exports.ts';
import type { Estimate } from '../../runs/store/nightly-store.ts';
import { EXIT, exitCodeOf, type CommandContext, type CommandResult } from '../context.ts';
import { followRuns, runDocument, startNight } from '../follow.ts';
import { formatBytes, formatCount, formatDuration } from '../format.ts';
import { runSummary } from '../summary.ts';

export async function nightly(
  options: { readonly dryRun: boolean },
  context: CommandContext,
): Promise<CommandResult> {
  needSource(context.config);
  await using app = await openApp(context);
  if (options.dryRun) return await plan(app, context);
  const run = await startNight(app, 'now', context);
  const [ended] = await followRuns(app, [run], context);
  if (ended === undefined) throw new Error(`run ${run.runId} ended without a record`);
  return {
    exitCode: exitCodeOf(ended.verdict, ended.evidence),
    document: runDocument(ended),
    text: runSummary(runDocument(ended)),
  };
}

/** What NIGHTLY_AUDIT_SHARE adds to the exports' answers; it costs no requests of its own. */
function auditCost({ auditable }: Estimate, share: number): { segments: number; bytes: number } {
  return {
    segments: Math.ceil(auditable.segments * share),
    bytes: Math.ceil(Number(auditable.bytes) * share),
  };
}

/** The lists cost a request or two each where little is new; every due party costs one export. */
async function plan(app: App, context: CommandContext): Promise<CommandResult> {
  const { nightlyParties, nightlyExportsMax, nightlyAuditShare, sourceRate, sourcePageSize } = context.config;
  const estimate = await previewNight({ nightly: app.jobs.nightly, nightlyParties }, nightlyExportsMax);
  const due = estimate.parties - estimate.notDue;
  const exports = Math.min(due, nightlyExportsMax ?? Infinity);
  const requests = exports + estimate.listRequests;
  const secondsMin = requests / sourceRate;
  const audits = auditCost(estimate, nightlyAuditShare);
  const seconds = Math.max(secondsMin, exports * (estimate.secondsPerExport ?? 0));
  const document = {
    dryRun: true,
    lists: {
      requests: estimate.listRequests,
      known: estimate.isFirst ? 'nothing yet: the first sync asks for every page' : 'only what is new',
    },
    exports: {
      due,
      asked: exports,
      deferred: due - exports,
      notDue: estimate.notDue,
      quarantined: estimate.quarantined,
    },
    audits,
    requests,
    seconds: Math.ceil(seconds),
    ratePerSecond: sourceRate,
  };
  const text = [
    ...(estimate.isFirst
      ? [
          `Would ask the source for more than can be told before its lists are known, at most ${sourceRate} requests a second:`,
          `  lists     every page, from both ends until they meet (${formatCount(sourcePageSize)} rows each)`,
          `  exports   one or more for each party listed${due > 0 ? `; ${formatCount(due)} are chosen` : ''}`,
        ]
      : [
          `Would ask the source about ${formatCount(requests)} requests, which should take about ${formatDuration(seconds * 1000)} at ${sourceRate} a second:`,
          `  lists     ${formatCount(estimate.listRequests)} (${document.lists.known})`,
          `  exports   ${formatCount(exports)} of ${formatCount(due)} parties due` +
            (estimate.quarantined > 0
              ? `, ${formatCount(estimate.quarantined)} of them quarantined before`
              : '') +
            (estimate.notDue > 0 ? `; ${formatCount(estimate.notDue)} idle ones wait for another night` : ''),
        ]),
    ...(audits.segments === 0
      ? []
      : [
          `  audit     about ${formatCount(audits.segments)} closed segments once more, with these exports: ${formatBytes(audits.bytes)} of CSV`,
        ]),
    'Nothing was asked.',
    '',
  ].join('\n');
  return { exitCode: EXIT.done, document, text };
}
