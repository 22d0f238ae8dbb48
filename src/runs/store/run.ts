/** A run, as it is recorded. */
import type { Selectable } from 'kysely';
import type { Verdict } from '../../core/verdict.ts';
import type { MirrorSchema, RunKind, RunState } from '../../postgres/schema.ts';

export interface Run {
  readonly runId: string;
  readonly parentRunId: string | undefined;
  readonly kind: RunKind;
  readonly subject: string;
  /** The source that it asks; undefined where it asks none. */
  readonly sourceUrl: string | undefined;
  readonly scheduleKey: string | undefined;
  readonly params: Readonly<Record<string, unknown>>;
  readonly state: RunState;
  readonly verdict: Verdict | undefined;
  readonly evidence: Readonly<Record<string, unknown>>;
  readonly queuedAt: string;
  readonly startedAt: string | undefined;
  readonly heartbeatAt: string | undefined;
  readonly finishedAt: string | undefined;
  readonly attempts: number;
  readonly cancelRequested: boolean;
  /** Of the job that was queued for it last. */
  readonly jobId: string | undefined;
}

export interface NewRun {
  readonly kind: RunKind;
  readonly subject: string;
  readonly parentRunId?: string | undefined;
  /** At most one run has a given key, which tells its scheduled time. */
  readonly scheduleKey?: string | undefined;
  readonly params?: Readonly<Record<string, unknown>>;
}

export type RunRow = Selectable<MirrorSchema['runs']>;

export function toRun(row: RunRow): Run {
  return {
    runId: row.run_id,
    parentRunId: row.parent_run_id ?? undefined,
    kind: row.kind,
    subject: row.subject,
    sourceUrl: row.source_url ?? undefined,
    scheduleKey: row.slot ?? undefined,
    params: row.params,
    state: row.state,
    verdict: row.verdict ?? undefined,
    evidence: row.evidence,
    queuedAt: row.queued_at,
    startedAt: row.started_at ?? undefined,
    heartbeatAt: row.heartbeat_at ?? undefined,
    finishedAt: row.finished_at ?? undefined,
    attempts: row.attempts,
    cancelRequested: row.cancel_requested,
    jobId: row.job_id ?? undefined,
  };
}
