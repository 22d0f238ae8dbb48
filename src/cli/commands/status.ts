/** `status`: is the mirror whole, how fresh is it, what is under way, what needs a person. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import { glance, type MirrorStatus } from '../../api/mirror/glance.ts';
import type { Reader } from '../../app/reader.ts';
import { LAKE_DECIDED_IN_DATABASE } from '../../app/describe-store.ts';
import { errorLine, UsageError } from '../../core/errors.ts';
import type { Run } from '../../runs/store/run.ts';
import { EXIT, type CommandContext, type CommandResult } from '../context.ts';
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

export interface StatusOptions {
  readonly watch: boolean;
  readonly check?: boolean;
}

const WATCH_EVERY_MS = 1_000;
/** A living process renews its run every three seconds. */
const SILENT_MS = 10_000;
/** Runs shown with their progress; more are counted. */
const RUNS_SHOWN_MAX = 8;
/** A list may name a checkpoint twice; here it is one. */
const HELD = { parties: 'parties', checkpoints: 'unique checkpoints', ledger: 'entries' } as const;
const CLEAR_SCREEN = '\u001B[H\u001B[2J';

interface Underway {
  readonly run: Run;
  readonly progress: readonly ProgressLine[];
  /** No process works on it: the one that did is gone. */
  readonly isInterrupted: boolean;
}

export async function status(options: StatusOptions, context: CommandContext): Promise<CommandResult> {
  if (options.watch && context.isJson) {
    throw new UsageError([
      '--watch: not with --json, which is one document; call status --json again and again',
    ]);
  }
  if (options.watch && options.check === true) {
    throw new UsageError(['--watch: not with --check, which looks once; give one of them']);
  }
  await using app = await openMirrorReader(context);
  if (options.watch) return await watch(app, context);
  const found = glance(await app.status.facts());
  return {
    exitCode: options.check === true && !found.complete ? EXIT.verdict : EXIT.done,
    document: { ...found },
    text: describe(found, await underway(app), Date.now()),
  };
}

/** Until it is told to stop, or nobody reads it: in place on a terminal, otherwise a text whenever something has changed. */
async function watch(app: Reader, { stdout, signal: told }: CommandContext): Promise<CommandResult> {
  const isTerminal = stdout.isTTY === true;
  const unread = new AbortController();
  stdout.once('error', () => unread.abort());
  const signal = AbortSignal.any([told, unread.signal]);
  for (let shown = ''; !signal.aborted;) {
    const text = await look(app);
    if (isTerminal) stdout.write(`${CLEAR_SCREEN}${text}`);
    else if (text !== shown) stdout.write(`${text}\n`);
    shown = text;
    await sleep(WATCH_EVERY_MS, undefined, { signal }).catch(() => undefined);
  }
  return { exitCode: EXIT.done };
}

/** A store that is away for a while does not end the watching. */
async function look(app: Reader): Promise<string> {
  try {
    const [facts, runs] = await Promise.all([app.status.facts(), underway(app)]);
    return describe(glance(facts), runs, Date.now());
  } catch (error) {
    return `Cannot read the mirror's state now, trying again: ${errorLine(error)}\n`;
  }
}

async function underway(app: Reader): Promise<readonly Underway[]> {
  const runs = await app.runs.list({ states: ['running'], limit: RUNS_SHOWN_MAX });
  const stale = await app.runs.stale(SILENT_MS);
  // One without a heartbeat was given back, and waits to be tried again.
  const silent = new Set(stale.filter((run) => run.heartbeatAt !== null).map((run) => run.runId));
  return Promise.all(
    runs.map(async (run) => {
      const isInterrupted = silent.has(run.runId);
      return { run, progress: isInterrupted ? [] : await app.progress.read(run.runId), isInterrupted };
    }),
  );
}

function describe(found: MirrorStatus, runs: readonly Underway[], nowMs: number): string {
  const streams = found.streams.map((stream) => [
    stream.name,
    stream.verdict ?? 'not yet',
    stream.checkedAt === null ? '' : formatAge(Date.parse(stream.checkedAt), nowMs),
    stream.asOfBlock ?? '',
    stream.asOfTime?.slice(0, 19).replace('T', ' ') ?? '',
    heldText(stream, found),
    audited(found, stream.name, nowMs),
  ]);
  const { ledger, coverage } = found;
  const lines = [
    found.sentence,
    ...(found.sourceUrl === null ? [] : [`Source: ${printable(found.sourceUrl)}`]),
    '',
    formatTable(
      ['stream', 'verdict', 'checked', 'as of block', 'as of (UTC)', 'held', 'last audit'],
      streams,
    ).trimEnd(),
    '',
    `Ledgers: ${formatCount(coverage.covered)} of ${formatCount(coverage.wanted)} covered; ${formatCount(ledger.segments)} segments of ${formatCount(ledger.parties)} parties with entries, ${formatBytes(ledger.bytes)} as CSV` +
      (ledger.notLoaded === '0' ? '' : `, ${formatCount(ledger.notLoaded)} segments not loaded yet`),
    ...(found.lakeCommitsDecidedBy === 'database' ? [LAKE_DECIDED_IN_DATABASE] : []),
    ...workLines(found, nowMs),
    ...openLines(found, runs, nowMs),
    ...found.attention.flatMap(({ what, why, todo }) => ['', `! ${what}: ${why}`, `  ${todo}`]),
    '',
  ];
  return lines.join('\n');
}

function heldText(
  { name, rows }: MirrorStatus['streams'][number],
  { hasNetwork, coverage }: MirrorStatus,
): string {
  return name === 'parties' && hasNetwork
    ? `${formatCount(coverage.listed)} parties and network`
    : formatQuantity(rows, HELD[name]);
}

/** When a list was last read from its oldest row on. */
function audited({ lists }: MirrorStatus, name: string, nowMs: number): string {
  const at = lists.find(({ list }) => list === name)?.lastAuditAt ?? null;
  return at === null ? '' : formatAge(Date.parse(at), nowMs);
}

function workLines({ work }: MirrorStatus, nowMs: number): readonly string[] {
  if (work.workers === 0) return ['Workers: none running'];
  const next =
    work.nextSlot === null ? '' : `; next nightly run ${formatAge(Date.parse(work.nextSlot), nowMs)}`;
  return [`Workers: ${work.workers}${next}`];
}

function openLines(
  { openRuns, work }: MirrorStatus,
  runs: readonly Underway[],
  nowMs: number,
): readonly string[] {
  const interrupted = runs.filter((one) => one.isInterrupted);
  const going = BigInt(openRuns) - BigInt(interrupted.length);
  const next = work.workers > 0 ? 'a worker' : 'the next nightly run';
  return [
    ...(going > 0n ? [`Runs under way: ${going}`] : []),
    ...runs.filter((one) => !one.isInterrupted).flatMap((one) => runLines(one, nowMs)),
    ...interrupted.map(
      ({ run }) =>
        `Interrupted: ${run.kind} ${printable(run.subject)}; ${next} goes on from what it committed`,
    ),
  ];
}

function runLines({ run, progress }: Underway, nowMs: number): readonly string[] {
  const since = formatAge(Date.parse(run.startedAt ?? run.queuedAt), nowMs);
  return [
    `  ${run.kind} ${printable(run.subject)}, begun ${since}`,
    ...progress.map(({ label, done, total, unit, note }) => {
      const amount = total === undefined ? formatQuantity(done, unit) : formatShare(done, total, unit);
      const more = note === undefined ? '' : ` (${printable(note)})`;
      return `    ${printable(label)}: ${amount}${more}`;
    }),
  ];
}
