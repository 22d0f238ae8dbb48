/** A run, as it is recorded in a row of `mirror.runs`. */
import { sql } from 'kysely';
import type { RunDocument } from '../run-schema.ts';

export interface Run extends Readonly<RunDocument> {
  /** The source that it asks; null where it asks none. */
  readonly sourceUrl: string | null;
  readonly scheduleKey: string | null;
  readonly params: Readonly<Record<string, unknown>>;
  readonly heartbeatAt: string | null;
  readonly cancelRequested: boolean;
  /** Of the job that was queued for it last. */
  readonly jobId: string | null;
}

/** The columns under the names of `Run`. */
export const RUN_COLUMNS = sql`run_id as "runId", parent_run_id as "parentRunId", kind, subject,
  source_url as "sourceUrl", slot as "scheduleKey", params, state, verdict, evidence, queued_at as "queuedAt",
  started_at as "startedAt", heartbeat_at as "heartbeatAt", finished_at as "finishedAt", attempts,
  cancel_requested as "cancelRequested", job_id as "jobId"`;

export interface NewRun extends Pick<Run, 'kind' | 'subject'> {
  readonly parentRunId?: string | undefined;
  /** At most one run has a given key, which tells its scheduled time. */
  readonly scheduleKey?: string | undefined;
  readonly params?: Run['params'];
}
