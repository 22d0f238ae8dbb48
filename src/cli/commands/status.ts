/**
 * `status`: shows whether the mirror is complete, how fresh it is, what is running, and
 * what needs an operator.
 */
import {
  summarizeStatus,
  type MirrorStatus,
} from '../../status/status-summary.ts';
import type { ReadOnlyBase } from '../../app/base.ts';
import { LAKE_DECIDED_IN_DATABASE } from '../../app/describe-store.ts';
import type { Run } from '../../runs/store/run-store.ts';
import { UsageError } from '../../errors/errors.ts';
import { EXIT, type Handler } from '../context.ts';
import { listGone, openMirrorReader } from '../mirror.ts';
import {
  formatAge,
  formatBytes,
  formatCount,
  formatQuantity,
  formatTime,
} from '../../format/format.js';
import { formatTable, printable } from '../output/format.ts';
import { progressText } from '../output/progress-text.ts';
import { watchText } from '../output/watch-text.ts';

/**
 * Maximum number of runs that are shown with their progress; the others are only counted.
 */
const RUNS_SHOWN_MAX = 8;
/**
 * The unit of each stream's rows. A list may contain a checkpoint twice; here it counts
 * once.
 */
const HELD = {
  parties: 'parties',
  checkpoints: 'unique checkpoints',
  ledger: 'entries',
} as const;

interface StatusOptions {
  /** Whether the command exits with code 2 if the mirror is not complete. */
  readonly check: boolean;
  /** Whether to keep showing the status until the command is stopped. */
  readonly watch?: boolean;
}

export const status: Handler<StatusOptions> = async (
  { check: isChecking, watch: isWatching = false },
  context,
) => {
  if (isWatching && context.isJson)
    throw new UsageError([
      '--watch: not with --json, which is one document; leave one of them out',
    ]);
  if (isWatching && isChecking)
    throw new UsageError([
      '--watch: not with --check, which looks once; leave one of them out',
    ]);
  await using app = await openMirrorReader(context);
  if (isWatching) {
    const look = async () => {
      const facts = summarizeStatus(await app.status.facts());
      return describe(facts, await openLines(facts, app));
    };
    await watchText(look, context);
    return {};
  }
  const found = summarizeStatus(await app.status.facts());
  return {
    exitCode: isChecking && !found.complete ? EXIT.verdict : EXIT.done,
    document: { ...found },
    text: describe(found, await openLines(found, app)),
  };
};

function age(at: string | null | undefined): string {
  return at ? formatAge(Date.parse(at), Date.now()) : '';
}

function describe(found: MirrorStatus, open: readonly string[]): string {
  const { ledger, coverage, streams, lists, work, hasNetwork } = found;
  const rows = streams.map(
    ({ name, verdict, checkedAt, asOfBlock, asOfTime, rows: held }) => [
      name,
      verdict ?? 'not yet',
      age(checkedAt),
      asOfBlock ?? '',
      asOfTime === null ? '' : formatTime(asOfTime),
      name === 'parties' && hasNetwork
        ? `${formatCount(coverage.listed)} parties, plus the network account`
        : formatQuantity(held, HELD[name]),
      age(lists.find(({ list }) => list === name)?.lastAuditAt),
    ],
  );
  const header = [
    'stream',
    'verdict',
    'checked',
    'as of block',
    'as of (UTC)',
    'held',
    'last audit',
  ];
  const next =
    work.nextSlot === null ? '' : `; next nightly run ${age(work.nextSlot)}`;
  return [
    found.sentence,
    ...(found.sourceUrl === null
      ? []
      : [`Source: ${printable(found.sourceUrl)}`]),
    '',
    formatTable(header, rows).trimEnd(),
    '',
    `Ledgers: ${formatCount(coverage.covered)} of ${formatCount(coverage.wanted)} ` +
      `covered; ${formatCount(ledger.segments)} segments of ` +
      `${formatCount(ledger.parties)} parties with entries, ` +
      `${formatBytes(ledger.bytes)} as CSV` +
      (ledger.notLoaded === '0'
        ? ''
        : `, ${formatCount(ledger.notLoaded)} segments not loaded yet`),
    ...(coverage.comparedSince === null
      ? []
      : [
          `Oldest comparison of a range with the source: ${age(coverage.comparedSince)}; ` +
            'what the source added to such ranges since then is not known',
        ]),
    ...(coverage.removed === 0
      ? []
      : [
          `Removed by the source: ${formatQuantity(String(coverage.removed), 'parties')}; ` +
            'their ledgers are kept, and not asked for',
        ]),
    ...(found.proof === null
      ? []
      : [
          `Signed nights: ${formatCount(found.proof.nights)}; the public key is ` +
            printable(found.proof.publicKey),
        ]),
    ...(found.lakeCommitsDecidedBy === 'database'
      ? [LAKE_DECIDED_IN_DATABASE]
      : []),
    work.workers === 0
      ? 'Workers: none running'
      : `Workers: ${work.workers}${next}`,
    ...open,
    ...found.attention.flatMap(({ what, why, todo }) => [
      '',
      `! ${what}: ${why}`,
      `  ${todo}`,
    ]),
    '',
  ].join('\n');
}

/**
 * Describes the running runs with their progress, and the runs that no process is working
 * on any more.
 */
async function openLines(
  { openRuns, work }: MirrorStatus,
  app: ReadOnlyBase,
): Promise<string[]> {
  const running = await app.runs.list({
    states: ['running'],
    limit: RUNS_SHOWN_MAX,
  });
  const stale = await listGone(app.runs);
  const isGone = (run: Run) => stale.some(({ runId }) => runId === run.runId);
  const gone = running.filter(isGone);
  const going = BigInt(openRuns) - BigInt(gone.length);
  const name = ({ kind, subject }: Run) => `${kind} ${printable(subject)}`;
  const lines = going > 0n ? [`Runs under way: ${going}`] : [];
  for (const run of running.filter((one) => !isGone(one))) {
    lines.push(`  ${name(run)}, begun ${age(run.startedAt ?? run.queuedAt)}`);
    for (const line of await app.progress.read(run.runId))
      lines.push(`    ${progressText(line)}`);
  }
  const next = work.workers > 0 ? 'a worker' : 'the next nightly run';
  return [
    ...lines,
    ...gone.map(
      (run) =>
        `Interrupted: ${name(run)}; ${next} continues from what it committed`,
    ),
  ];
}
