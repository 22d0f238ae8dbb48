/**
 * Records with a nightly run that its source is unavailable, so that every process
 * working on the run waits out the same outage, and every view shows it. Times are by the
 * database's clock.
 */
import { z } from 'zod';
import type { Database } from '../../postgres/database.ts';
import { execute } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import type { Run } from './run-store.ts';

/**
 * What is unavailable: `everything`, or only the export while the lists still respond.
 */
export type AbsentRoute = 'everything' | 'export';

const absence = z.object({
  /** When the outage was noticed; RFC 3339. */
  since: z.string(),
  code: z.string(),
  message: z.string(),
  route: z.enum(['everything', 'export']),
  /** True if no connection could be made, for example because the address is wrong. */
  isUnreachable: z.boolean().default(false),
  /** True if the run no longer waits, because its window is over. */
  isGivenUp: z.boolean().default(false),
});
const waits = z.object({
  times: z.number(),
  seconds: z.number(),
  firstAt: z.string(),
  lastEndedAt: z.string(),
});

/** An outage that has not ended. */
export type SourceAbsence = z.infer<typeof absence>;
/** The totals over all of a run's past outages. */
export type SourceWaits = z.infer<typeof waits>;

export function readAbsence({
  params,
}: Pick<Run, 'params'>): SourceAbsence | undefined {
  return absence.safeParse(params['sourceAbsence']).data;
}

export function readWaits({
  params,
}: Pick<Run, 'params'>): SourceWaits | undefined {
  return waits.safeParse(params['sourceWaits']).data;
}

interface NewAbsence extends Pick<
  SourceAbsence,
  'code' | 'message' | 'route' | 'isUnreachable'
> {
  readonly runId: string;
}

/**
 * Records that the source is unavailable. An outage that is already recorded is left
 * unchanged.
 */
export async function noteAbsence(
  db: Database,
  { runId, ...noted }: NewAbsence,
): Promise<void> {
  const note = statement()`
    update mirror.runs
       set params = params || jsonb_build_object('sourceAbsence',
             ${JSON.stringify(noted)}::jsonb || jsonb_build_object('since', clock_timestamp()))
     where run_id = ${runId} and state = 'running' and not params ? 'sourceAbsence'`;
  await execute(db, 'note that the source is away', note);
}

/** Records that the source is back, and adds the outage to the past ones. */
export async function endAbsence(db: Database, runId: string): Promise<void> {
  const note = statement()`
    update mirror.runs
       set params = params - 'sourceAbsence' || jsonb_build_object('sourceWaits', jsonb_build_object(
             'times', coalesce((params->'sourceWaits'->>'times')::int, 0) + 1,
             'seconds', coalesce((params->'sourceWaits'->>'seconds')::int, 0) + greatest(0, round(extract(
               epoch from clock_timestamp() - (params->'sourceAbsence'->>'since')::timestamptz)))::int,
             'firstAt', coalesce(params->'sourceWaits'->'firstAt', params->'sourceAbsence'->'since'),
             'lastEndedAt', clock_timestamp()))
     where run_id = ${runId} and params ? 'sourceAbsence'`;
  await execute(db, 'note that the source is back', note);
}

/** Records that the run no longer waits. The outage is kept as the reason. */
export async function giveAbsenceUp(
  db: Database,
  runId: string,
): Promise<void> {
  const note = statement()`
    update mirror.runs set params = jsonb_set(params, '{sourceAbsence,isGivenUp}', 'true')
     where run_id = ${runId} and params ? 'sourceAbsence'`;
  await execute(db, 'note that the source is waited for no longer', note);
}
