/** `status`: is the mirror whole, how fresh is it, what is under way, what needs a person. */
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import { glance, type MirrorStatus } from '../../api/mirror/glance.ts';
import type { Reader } from '../../app/base.ts';
import { LAKE_DECIDED_IN_DATABASE } from '../../app/describe-store.ts';
import type { Run } from '../../runs/store/run-store.ts';
import { EXIT, type Handler } from '../context.ts';
import { openMirrorReader } from '../mirror.ts';
import {
  formatAge,
  formatBytes,
  formatCount,
  formatQuantity,
  formatShare,
  printable,
} from '../output/format.ts';
import { formatTable } from '../output/table.ts';

/** A living process renews its run every three seconds. */
const SILENT_MS = 10_000;
/** Runs shown with their progress; more are counted. */
const RUNS_SHOWN_MAX = 8;
/** A list may name a checkpoint twice; here it is one. */
const HELD = { parties: 'parties', checkpoints: 'unique checkpoints', ledger: 'entries' } as const;

interface Underway {
  readonly run: Run;
  readonly progress: readonly ProgressLine[];
  /** No process works on it: the one that did is gone. */
  readonly isInterrupted: boolean;
}

export const status: Handler<{ check: boolean }> = async ({ check: isChecking }, context) => {
  await using app = await openMirrorReader(context);
  const found = glance(await app.status.facts());
  return {
    exitCode: isChecking && !found.complete ? EXIT.verdict : EXIT.done,
    document: { ...found },
    text: describe(found, await underway(app), Date.now()),
  };
};

async function underway(app: Reader): Promise<readonly Underway[]> {
  const runs = await app.runs.list({ states: ['running'], limit: RUNS_SHOWN_MAX });
  const stale = await app.runs.stale(SILENT_MS);
  return Promise.all(
    runs.map(async (run) => {
      // One without a heartbeat was given back, and waits to be tried again.
      const isInterrupted = stale.some(
        ({ runId, heartbeatAt }) => runId === run.runId && heartbeatAt !== null,
      );
      return { run, progress: isInterrupted ? [] : await app.progress.read(run.runId), isInterrupted };
    }),
  );
}

function describe(found: MirrorStatus, runs: readonly Underway[], nowMs: number): string {
  const { ledger, coverage, streams, lists, work, hasNetwork } = found;
  const age = (at: string | null | undefined): string => (at ? formatAge(Date.parse(at), nowMs) : '');
  const rows = streams.map(({ name, verdict, checkedAt, asOfBlock, asOfTime, rows: held }) => [
    name,
    verdict ?? 'not yet',
    age(checkedAt),
    asOfBlock ?? '',
    asOfTime?.slice(0, 19).replace('T', ' ') ?? '',
    name === 'parties' && hasNetwork
      ? `${formatCount(coverage.listed)} parties and network`
      : formatQuantity(held, HELD[name]),
    age(lists.find(({ list }) => list === name)?.lastAuditAt),
  ]);
  const header = ['stream', 'verdict', 'checked', 'as of block', 'as of (UTC)', 'held', 'last audit'];
  const next = work.nextSlot === null ? '' : `; next nightly run ${age(work.nextSlot)}`;
  const lines = [
    found.sentence,
    ...(found.sourceUrl === null ? [] : [`Source: ${printable(found.sourceUrl)}`]),
    '',
    formatTable(header, rows).trimEnd(),
    '',
    `Ledgers: ${formatCount(coverage.covered)} of ${formatCount(coverage.wanted)} covered; ${formatCount(ledger.segments)} segments of ${formatCount(ledger.parties)} parties with entries, ${formatBytes(ledger.bytes)} as CSV` +
      (ledger.notLoaded === '0' ? '' : `, ${formatCount(ledger.notLoaded)} segments not loaded yet`),
    ...(found.lakeCommitsDecidedBy === 'database' ? [LAKE_DECIDED_IN_DATABASE] : []),
    work.workers === 0 ? 'Workers: none running' : `Workers: ${work.workers}${next}`,
    ...openLines(found, runs, age),
    ...found.attention.flatMap(({ what, why, todo }) => ['', `! ${what}: ${why}`, `  ${todo}`]),
    '',
  ];
  return lines.join('\n');
}

function openLines(
  { openRuns, work }: MirrorStatus,
  runs: readonly Underway[],
  age: (at: string) => string,
): readonly string[] {
  const [interrupted = [], live = []] = [true, false].map((is) =>
    runs.filter(({ isInterrupted }) => isInterrupted === is),
  );
  const going = BigInt(openRuns) - BigInt(interrupted.length);
  const next = work.workers > 0 ? 'a worker' : 'the next nightly run';
  const name = ({ kind, subject }: Run): string => `${kind} ${printable(subject)}`;
  return [
    ...(going > 0n ? [`Runs under way: ${going}`] : []),
    ...live.flatMap(({ run, progress }) => [
      `  ${name(run)}, begun ${age(run.startedAt ?? run.queuedAt)}`,
      ...progress.map(progressText),
    ]),
    ...interrupted.map(({ run }) => `Interrupted: ${name(run)}; ${next} goes on from what it committed`),
  ];
}

function progressText({ label, done, total, unit, note }: ProgressLine): string {
  const amount = total === undefined ? formatQuantity(done, unit) : formatShare(done, total, unit);
  return `    ${printable(label)}: ${amount}${note === undefined ? '' : ` (${printable(note)})`}`;
}
