/**
 * The facts about nightly runs from the table of runs. Every view reads them with this
 * one statement.
 */
import { sql } from 'kysely';
import { RUN_SILENT_MS } from '../../concurrency/lease.ts';
import type { Database } from '../../postgres/database.ts';
import { readRow } from '../../postgres/run-statement.ts';
import { statement, typed } from '../../postgres/statement.ts';
import type { RecordedNights } from '../night-facts.ts';

/** Whether a row of `mirror.runs` is a running run that is waiting for its source. */
export const AWAITS_SOURCE = sql<boolean>`(state = 'running' and params ? 'sourceAbsence'
  and not coalesce((params->'sourceAbsence'->>'isGivenUp')::boolean, false))`;

/**
 * Scalar: RecordedNights as JSON. A run whose process crashed does not count as running.
 */
export const RECORDED_NIGHTS = sql`json_build_object(
  'last', (select json_build_object('runId', run_id, 'verdict', verdict, 'startedAt', started_at,
      'finishedAt', finished_at) from mirror.runs
    where kind = 'nightly' and state = 'done' order by queued_at desc limit 1),
  'lastCompleteAt', (select finished_at from mirror.runs
    where kind = 'nightly' and verdict = 'complete' order by queued_at desc limit 1),
  'running', (select json_build_object('runId', run_id, 'startedAt', started_at, 'awaitedSource',
      case when ${AWAITS_SOURCE} then json_build_object('since', params->'sourceAbsence'->'since',
          'reason', params->'sourceAbsence'->'message') end) from mirror.runs
    where kind = 'nightly' and state in ('queued', 'running')
      and coalesce(heartbeat_at > clock_timestamp() - ${RUN_SILENT_MS} * interval '1 millisecond', true)
    order by queued_at limit 1))`;

/** Reads these facts for callers that need no other part of the status. */
export async function readRecordedNights(
  db: Database,
): Promise<RecordedNights> {
  const reading = statement({ nights: typed<RecordedNights>('json') })`
    select ${RECORDED_NIGHTS} as nights`;
  const { nights } = await readRow(db, 'look at the nightly runs', reading);
  return nights;
}
