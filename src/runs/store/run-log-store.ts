/** Log lines of runs, as long as their run is kept. */
import { sql } from 'kysely';
import { evidenceJson } from '../../core/json-value.ts';
import type { Database } from '../../postgres/database.ts';
import { readRows } from '../../postgres/transaction.ts';

export interface RunLine {
  readonly runId: string;
  /** RFC 3339 */
  readonly at: string;
  readonly level: string;
  /** Constant; what varies lies in `fields`. */
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A page of lines: pages in the order in which lines were written, the lines of each by their time. */
export interface RunLinePage {
  readonly lines: readonly Omit<RunLine, 'runId'>[];
  /** Where the next page begins; undefined at the end. */
  readonly next: string | undefined;
}

/** Lines of runs that are not known (any more) are left out. One writer at a time: a reader's pages follow the ids. */
export async function appendLines(db: Database, lines: readonly RunLine[]): Promise<void> {
  await readRows(
    db,
    'keep log lines',
    sql`with turn as materialized (select pg_advisory_xact_lock(mirror.lock_key('run logs')))
        insert into mirror.run_logs (run_id, at, level, message, fields)
        select line.run_id, line.at, line.level, line.message, line.fields
          from turn cross join rows from (jsonb_to_recordset(${evidenceJson(lines)}::jsonb)
            as ("runId" uuid, at timestamptz, level text, message text, fields jsonb))
            with ordinality as line (run_id, at, level, message, fields, position)
          join mirror.runs run using (run_id) order by position`,
  );
}

/** Of a run and of those below it. @param after `next` of the page before */
export async function readLines(
  db: Database,
  runId: string,
  rowsMax: number,
  after = '0',
): Promise<RunLinePage> {
  const rows = await readRows(
    db,
    'read log lines',
    sql<Omit<RunLine, 'runId'> & { line_id: string }>`
        select line_id::text, to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at, level, message, fields
          from mirror.run_logs
         where run_id in (select run_id from mirror.runs where run_id = ${runId} or parent_run_id = ${runId}) and run_logs.line_id > ${after}::bigint
         order by run_logs.line_id limit ${rowsMax}`,
  );
  const lines = rows.map(({ line_id: _lineId, ...line }) => line);
  return { lines: byTime(lines), next: rows.length < rowsMax ? undefined : rows.at(-1)?.line_id };
}

/** Another process may have written later what it said earlier. */
export function byTime<Line extends { readonly at: string }>(lines: readonly Line[]): readonly Line[] {
  return lines.toSorted((one, other) => (one.at < other.at ? -1 : Number(one.at > other.at)));
}
