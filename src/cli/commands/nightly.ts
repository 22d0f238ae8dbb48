/**
 * `nightly`, `load` and `verify`: `nightly` starts the scheduled run now; `load` and
 * `verify` work on published objects, without the source.
 */
import { readFile } from 'node:fs/promises';
import { openApp, type App } from '../../app/app.ts';
import { describeWrongParties } from '../../app/configured-parties.ts';
import { requireSource } from '../../config/environment.ts';
import { errorCode, UsageError } from '../../errors/errors.ts';
import type { VerifyRequest } from '../../runs/job.ts';
import {
  describeNightly,
  type FirstRunPreview,
  type NightlyPreview,
  previewFirstRun,
  type PreviewRange,
} from '../../runs/nightly/nightly-preview.ts';
import { REPORTS_PREFIX } from '../../runs/nightly-report.ts';
import {
  type CommandContext,
  type CommandResult,
  runResult,
  type Handler,
} from '../context.ts';
import { followRun, joinOrCreate, startNight, verifyHere } from '../follow.ts';
import { findRun, isRunId, openMirror } from '../mirror.ts';
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatPlural,
} from '../../format/format.js';

/** How long a look-up of the configured parties may delay a run. */
const LOOK_UP_MAX_MS = 5_000;

/** `--dry-run` only reports what the run would request from the source. */
export const nightly: Handler<{ dryRun: boolean; look: boolean }> = async (
  options,
  context,
) => {
  const { config, notices } = context;
  if (options.look && !options.dryRun)
    throw new UsageError(['--look: only works together with --dry-run']);
  requireSource(config);
  await using app = await openApp(context);
  if (options.dryRun) {
    const preview = await describeNightly(app.jobs, config);
    // Once a mirror has read the lists, it knows more than this quick look would show.
    if (options.look && preview.isFirst) return await lookFirst(app, context);
    return {
      document: { dryRun: true, ...preview },
      text: describePlan(preview, config.sourcePageSize),
    };
  }
  await app.ownership.refuseStrange(context.signal);
  await warnOfParties(app, context);
  const run = await startNight(app, 'now', context);
  // The user needs the id for `cancel`. The settings of this command apply only if this
  // process also runs the job; any other process uses its own settings.
  const { runId } = run;
  const started = 'Nightly run started';
  if (await app.workers.anyAlive(app.jobs.source?.url))
    notices.warn(
      { runId },
      `${started}; a worker in another process is doing it, with its own ` +
        'settings',
    );
  else notices.info({ runId }, started);
  return runResult(await followRun(app, run, context));
};

/**
 * Warns of configured parties that the source does not list, if the source answers in
 * time.
 */
async function warnOfParties(
  app: App,
  { signal, notices }: CommandContext,
): Promise<void> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(LOOK_UP_MAX_MS)]);
  try {
    const wrong = await describeWrongParties(app, limit);
    if (wrong !== undefined) notices.warn(wrong);
  } catch {
    // The run itself waits for an unavailable source, and reports why.
    signal.throwIfAborted();
  }
}

/** Requests both ends of each list from the source, and estimates the first run. */
async function lookFirst(
  { jobs }: App,
  { config, signal }: CommandContext,
): Promise<CommandResult> {
  const looks = await jobs.stages.estimateListSizes(signal);
  const look = previewFirstRun(looks, jobs, config);
  return {
    document: { dryRun: true, isFirst: true, look },
    text: describeFirstRun(look, config.sourceRate),
  };
}

function describeFirstRun(look: FirstRunPreview, rate: number): string {
  const { lists, exports, networkRequests, requests, seconds, listBytes } =
    look;
  const each = lists.map(
    ({ list, rows, requests: pages }) =>
      `  ${list.padEnd(12)} ${formatRange(rows, formatCount)} rows in ` +
      `${formatRange(pages, formatCount)} requests, for two readings`,
  );
  const bytes =
    listBytes === null
      ? []
      : [`  lists' bytes ${formatRange(listBytes, formatBytes)} of JSON`];
  const duration = formatRange(seconds, (value) =>
    formatDuration(value * 1000),
  );
  return [
    `The first nightly run would send ${formatRange(requests, formatCount)} ` +
      `requests and take ${duration}, at most ${rate} requests a second:`,
    ...each,
    `  exports      ${formatRange(exports, formatCount)} requests, one for each ` +
      'party with a ledger; a large ledger takes more',
    `  network      ${formatPlural(networkRequests, 'request')}, which shows which ` +
      'network it is',
    ...bytes,
    'The size of the exports is not shown before they are requested.',
    'Two requests were sent for each list. Nothing was stored.',
    '',
  ].join('\n');
}

/** Formats a range: `37`, `about 30 to 40`, or `at least 30`. */
function formatRange(
  { least, most }: PreviewRange,
  format: (value: number) => string,
): string {
  const low = format(least);
  if (most === null) return `at least ${low}`;
  const high = format(most);
  return low === high ? low : `about ${low} to ${high}`;
}

function describePlan(preview: NightlyPreview, pageSize: number): string {
  const { isFirst, exports, requests, seconds, ratePerSecond } = preview;
  const { asked, due, quarantined, notDue } = exports;
  const lines = isFirst
    ? [
        "Cannot estimate yet: this mirror has not read the source's lists. " +
          '`ledger-mirror nightly --dry-run --look` estimates from two requests a ' +
          'list; `ledger-mirror sync all` reads them.',
        `The first nightly run asks, at most ${ratePerSecond} requests a second:`,
        `  lists     every page (${formatCount(pageSize)} rows each)`,
        '  exports   one or more for each party ' +
          `listed${due > 0 ? `; ${formatCount(due)} are chosen` : ''}`,
      ]
    : [
        `Would ask the source about ${formatCount(requests)} requests, which ` +
          `should take about ${formatDuration(seconds * 1000)} at ${ratePerSecond} ` +
          'a second:',
        `  lists     ${describeLists(preview)}`,
        `  exports   ${formatCount(asked)} of ${formatCount(due)} parties due` +
          (quarantined > 0
            ? `, ${formatCount(quarantined)} of them quarantined before`
            : '') +
          (notDue > 0
            ? `; ${formatCount(notDue)} idle ones wait for another nightly run`
            : ''),
        ...describeAudits(preview),
      ];
  return [...lines, 'Nothing was asked.', ''].join('\n');
}

/**
 * Describes the requests for the lists: `7: parties 12,345 rows, read whole; checkpoints
 * 2,137 rows, only what is new`.
 */
function describeLists({ lists }: NightlyPreview): string {
  const each = lists.each.map(
    ({ list, rows, isWhole }) =>
      `${list} ${formatCount(rows)} rows, ` +
      (isWhole ? 'read whole' : 'only what is new'),
  );
  return `${formatCount(lists.requests)}: ${each.join('; ')}`;
}

function describeAudits({ audits }: NightlyPreview): readonly string[] {
  if (audits.segments === '0') return [];
  return [
    `  audits    about ${formatCount(audits.segments)} closed segments once more, with ` +
      `these exports: at least ${formatBytes(audits.bytes)} of CSV`,
  ];
}

export const load: Handler<{ all: boolean; takeOver: boolean }> = async (
  options,
  context,
) => {
  await using app = await openApp(context);
  if (options.takeOver) {
    await app.ownership.takeOver(context.signal);
    context.notices.info({ store: app.store.url }, 'Object store taken over');
  }
  await app.ownership.refuseStrange(context.signal, options.all);
  const params = { rebuild: options.all };
  const { run } = await joinOrCreate(app, {
    kind: 'load',
    subject: 'warehouse and lake',
    params,
  });
  return runResult(await followRun(app, run, context));
};

interface VerifyFlags {
  readonly deep: boolean;
  readonly acceptLost: boolean;
  readonly against?: string;
}

export const verify: Handler<VerifyFlags> = async (options, context) => {
  const { deep, against, acceptLost: isLossAccepted } = options;
  await using app = await openMirror(context);
  await app.ownership.examine(context.signal);
  const report =
    against === undefined
      ? undefined
      : await findReport(against, app, context.signal);
  const request = { deep, against: report, isLossAccepted };
  return runResult(await verifyHere(app, request, context));
};

/**
 * Reads the report that the user named: a file, a key in the object store, or the id of a
 * nightly run.
 */
async function findReport(
  given: string,
  app: App,
  signal: AbortSignal,
): Promise<VerifyRequest['against']> {
  const file = await readFile(given, 'utf8').catch(() => undefined);
  if (file !== undefined) return { text: file, where: given };
  const run = isRunId(given)
    ? await findRun(app.jobs, '--against', given)
    : undefined;
  const key = run?.evidence['report'] ?? given;
  if (typeof key === 'string' && key.startsWith(REPORTS_PREFIX)) {
    try {
      const content = await (await app.store.read(key, signal)).toArray();
      return {
        text: Buffer.concat(content as Buffer[]).toString('utf8'),
        where: key,
      };
    } catch (error) {
      if (errorCode(error) !== 'OBJECT_MISSING') throw error;
    }
  }
  throw new UsageError([
    `--against: ${JSON.stringify(given.slice(0, 120))} is not a report; ` +
      'give a file, a key such as runs/….json, or the id of a nightly run',
  ]);
}
