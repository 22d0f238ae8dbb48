/**
 * Stores the log lines of each run for as long as the run is kept, for `logs RUN`, the
 * API and the console. Lines are written in batches. If the database is unreachable, or a
 * run logs too much, lines are dropped and counted; work never waits for them.
 */
import { evidenceJson } from '../../json/json-value.ts';
import { createLog, teeLog, type Log } from '../../logging/log.ts';
import type { Database } from '../../postgres/database.ts';
import { execute, readRows } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';

const FLUSH_MS = 1_000;
const QUEUED_MAX = 2_000;
const BATCH_MAX = 500;
/** Maximum number of lines that one process stores for one run. */
const LINES_MAX = 5_000;
const RUNS_COUNTED_MAX = 1_000;

export interface RunLine {
  readonly runId: string;
  /** RFC 3339. */
  readonly at: string;
  readonly level: string;
  /** A constant string; variable values are in `fields`. */
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/**
 * A page of lines. Pages follow the order in which lines were written; within a page,
 * lines are sorted by time.
 */
export interface RunLinePage {
  readonly lines: readonly Omit<RunLine, 'runId'>[];
  /** The start of the next page; undefined at the end. */
  readonly next: string | undefined;
}

/**
 * Stores log lines, skipping those of unknown or deleted runs. Only one writer runs at a
 * time because readers page by id, and would miss lines that commit out of order.
 */
export async function appendLines(
  db: Database,
  lines: readonly RunLine[],
): Promise<void> {
  const insertion = statement()`with turn as materialized (select pg_advisory_xact_lock(mirror.lock_key('run logs')))
        insert into mirror.run_logs (run_id, at, level, message, fields)
        select line.run_id, line.at, line.level, line.message, line.fields
          from turn cross join rows from (jsonb_to_recordset(${evidenceJson(lines)}::jsonb)
            as ("runId" uuid, at timestamptz, level text, message text, fields jsonb))
            with ordinality as line (run_id, at, level, message, fields, position)
          join mirror.runs run using (run_id) order by position`;
  await execute(db, 'keep log lines', insertion);
}

/**
 * Reads the lines of a run and its child runs.
 * @param after `next` of the previous page
 */
export async function readLines(
  db: Database,
  runId: string,
  rowsMax: number,
  after = '0',
): Promise<RunLinePage> {
  const page = statement({
    lineId: 'text',
    at: 'text',
    level: 'text',
    message: 'text',
    fields: typed<RunLine['fields']>('json'),
  })`
        select line_id::text as "lineId", to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at, level, message, fields
          from mirror.run_logs
         where run_id in (select run_id from mirror.runs where run_id = ${runId} or parent_run_id = ${runId}) and run_logs.line_id > ${after}::bigint
         order by run_logs.line_id limit ${rowsMax}`;
  const rows = await readRows(db, 'read log lines', page);
  const lines = rows.map(({ lineId: _lineId, ...line }) => line);
  return {
    lines: byTime(lines),
    next: rows.length < rowsMax ? undefined : rows.at(-1)?.lineId,
  };
}

/**
 * Sorts lines by time, because a process may store an older line after another process's
 * newer one.
 */
export function byTime<Line extends { readonly at: string }>(
  lines: readonly Line[],
): readonly Line[] {
  return lines.toSorted((one, other) =>
    one.at < other.at ? -1 : Number(one.at > other.at),
  );
}

export class RunLogs implements AsyncDisposable {
  readonly #append: (lines: readonly RunLine[]) => Promise<void>;
  readonly #counts = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;
  #queued: RunLine[] = [];
  #flushing: Promise<void> = Promise.resolve();

  constructor(append: (lines: readonly RunLine[]) => Promise<void>) {
    this.#append = append;
    this.#timer = setInterval(() => void this.flush(), FLUSH_MS).unref();
  }

  /**
   * Returns a log that also stores its lines of level `info` and above, regardless of its
   * own level.
   */
  tee(log: Log): Log {
    return teeLog(
      log,
      createLog('info', { write: (line) => this.#take(line) }),
    );
  }

  /**
   * Writes the queued lines. Lines that cannot be written are dropped, but they were
   * printed to stderr.
   */
  flush(): Promise<void> {
    const lines = this.#queued.splice(0, BATCH_MAX);
    if (lines.length === 0) return this.#flushing;
    this.#flushing = this.#flushing
      .then(() => this.#append(lines))
      .catch(() => undefined);
    return this.#flushing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    clearInterval(this.#timer);
    while (this.#queued.length > 0) await this.flush();
    await this.#flushing;
  }

  #take(line: string): void {
    const {
      runId,
      level,
      time,
      msg,
      pid: _,
      ...fields
    } = JSON.parse(line) as Record<string, unknown>;
    if (typeof runId !== 'string' || this.#queued.length >= QUEUED_MAX) return;
    const count = (this.#counts.get(runId) ?? 0) + 1;
    if (count > LINES_MAX) return;
    if (this.#counts.size >= RUNS_COUNTED_MAX && !this.#counts.has(runId))
      this.#counts.clear();
    this.#counts.set(runId, count);
    const further = {
      message: 'Further log lines of this run are not kept',
      fields: {},
    };
    const said = count < LINES_MAX ? { message: String(msg), fields } : further;
    this.#queued.push({
      runId,
      at: String(time),
      level: String(level),
      ...said,
    });
  }
}
