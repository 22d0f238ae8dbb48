/**
 * `runs` shows what ran and how it ended, `logs` shows what a run logged, and `cancel`
 * ends a run.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { UsageError } from '../../errors/errors.ts';
import { isOver, describeRun } from '../../runs/run-document.ts';
import { byTime, type RunLinePage } from '../../runs/store/run-logs.ts';
import type { ReadOnlyBase } from '../../app/base.ts';
import type { Run } from '../../runs/store/run-store.ts';
import type { Handler } from '../context.ts';
import { findRun, listGone, openMirrorReader } from '../mirror.ts';
import { formatAge, formatDuration } from '../../format/format.js';
import { readTypedInstants } from '../../time/typed-range.ts';
import { formatTable } from '../output/format.ts';
import { readableLog } from '../output/progress.ts';
import { runReport, type RunNow } from '../output/run-report.ts';

/**
 * How many characters of the parent's id are shown: the part that encodes its time, which
 * is enough to distinguish runs.
 */
const PARENT_CHARACTERS = 13;
const TIME_OPTIONS = { start: '--since', end: '--until' };
const LOG_PAGE_LINES = 1_000;
const LOG_LINES_MAX = 50_000;
const POLL_MS = 200;
/**
 * How long to wait for a cancelled run to end. A worker notices the request within three
 * seconds; the rest of the time lets it finish its current step and reach a safe point.
 */
const CANCEL_WAIT_MAX_MS = 15_000;

interface RunsOptions {
  readonly run?: string;
  readonly limit: number;
  readonly since?: string;
  readonly until?: string;
}

/** Lists the newest runs; given an id, shows that run with its evidence. */
export const runs: Handler<RunsOptions> = async (
  { run: given, limit, since, until },
  context,
) => {
  const isRanged = since !== undefined || until !== undefined;
  if (given !== undefined && isRanged)
    throw new UsageError([
      'runs: --since and --until choose from the list of runs; leave them out to ' +
        'see one run',
    ]);
  const range = readTypedInstants({ start: since, end: until }, TIME_OPTIONS);
  if (range.problems.length > 0) throw new UsageError(range.problems);
  await using app = await openMirrorReader(context);
  if (given !== undefined) {
    const run = await findRun(app, 'runs', given);
    const document = describeRun(run);
    const now = isOver(run) ? undefined : await lookAt(run, app);
    return { document, text: runReport({ ...document }, now) };
  }
  const listed = await app.runs.list({
    limit,
    since: range.start,
    until: range.end,
  });
  const now = Date.now();
  const rows = listed.map((run) => {
    const startMs = Date.parse(run.startedAt ?? run.queuedAt);
    const endMs = run.finishedAt === null ? now : Date.parse(run.finishedAt);
    return [
      run.runId,
      run.kind,
      run.subject,
      run.parentRunId === null
        ? ''
        : `${run.parentRunId.slice(0, PARENT_CHARACTERS)}…`,
      run.verdict ?? run.state,
      formatAge(startMs, now),
      formatDuration(endMs - startMs),
    ];
  });
  const header = [
    'run',
    'kind',
    'subject',
    'parent',
    'verdict',
    'started',
    'took',
  ];
  const none = isRanged
    ? 'No run started in this time.\n'
    : `No runs yet. 'ledger-mirror nightly' starts the first.\n`;
  return {
    document: listed.map(describeRun),
    text: rows.length === 0 ? none : formatTable(header, rows),
  };
};

/** Returns the current steps of a run, and whether a process is still working on it. */
async function lookAt(
  { runId }: Run,
  { runs: store, progress }: ReadOnlyBase,
): Promise<RunNow> {
  const gone = await listGone(store);
  return {
    lines: await progress.read(runId),
    isGone: gone.some((run) => run.runId === runId),
    nowMs: Date.now(),
  };
}

/** Shows the log lines of a run and of its child runs, whichever process wrote them. */
export const logs: Handler<{ run: string }> = async (
  { run: given },
  context,
) => {
  await using app = await openMirrorReader(context);
  const { runId } = await findRun(app, 'logs', given);
  const found: RunLinePage['lines'][number][] = [];
  for (
    let next: string | undefined = '0';
    next !== undefined && found.length < LOG_LINES_MAX;
  ) {
    const page = await app.status.logs(runId, LOG_PAGE_LINES, next);
    found.push(...page.lines);
    next = page.next;
  }
  const document = byTime(found).map(
    ({ at: time, level, message: msg, fields }) => ({
      level,
      time,
      msg,
      ...fields,
    }),
  );
  const text = document
    .map((line) => readableLog(JSON.stringify(line)))
    .join('');
  return {
    document,
    text: text === '' ? 'No log lines of this run have been kept.\n' : text,
  };
};

/** Ends a run of any kind, and its child runs, at the next safe point. */
export const cancel: Handler<{ run: string }> = async (
  { run: given },
  context,
) => {
  await using app = await openMirrorReader(context);
  const { runId } = await findRun(app, 'cancel', given);
  const before = await app.runs.requestCancel(runId);
  const startedMs = performance.now();
  for (;;) {
    const run = await app.runs.get(runId);
    if (run === undefined || before === undefined)
      throw new UsageError([`cancel: there is no run ${runId} any more`]);
    if (isOver(run) || performance.now() - startedMs > CANCEL_WAIT_MAX_MS)
      return {
        document: describeRun(run),
        text: `${describeEnd(run, before)}\n`,
      };
    await sleep(POLL_MS, undefined, { signal: context.signal });
  }
};

function describeEnd(
  { kind, subject, state, verdict }: Run,
  before: string,
): string {
  const what = `${kind} ${subject}`;
  if (before === 'done' || before === 'cancelled')
    return `${what} had ended already: ${verdict ?? before}`;
  if (state === 'cancelled')
    return `${what}: cancelled; what it committed stays`;
  if (state === 'done')
    return `${what}: ended by itself meanwhile: ${verdict ?? state}`;
  return `${what}: told to stop; it will end at its next safe point`;
}
