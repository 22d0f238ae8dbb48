/** The report of a nightly run for whoever wants to be told. Told at least once, or given up after a day. */
import { errorLine } from '../core/errors.ts';
import type { Run } from './store/run-store.ts';
import type { JobDeps } from './job.ts';

const GIVEN_UP_AFTER_MS = 24 * 3_600_000;
const LOOKED_AT_MAX = 20;

/** What is posted, and logged. */
export function reportOf(run: Run): Readonly<Record<string, unknown>> {
  const { runId, kind, subject, slot, verdict, startedAt, finishedAt, evidence } = run;
  return {
    runId,
    kind,
    subject,
    slot: slot ?? null,
    verdict: verdict ?? null,
    startedAt: startedAt ?? null,
    finishedAt: finishedAt ?? null,
    evidence,
  };
}

/** Sends what has not been sent yet; what cannot be sent now is tried again at the next call. */
export async function sendReports(
  deps: Pick<JobDeps, 'runs' | 'log' | 'post'>,
  nowMs: number,
): Promise<void> {
  if (deps.post === undefined) return;
  for (const run of await deps.runs.list({ kind: 'nightly', states: ['done'], limit: LOOKED_AT_MAX })) {
    const isOld = nowMs - Date.parse(run.finishedAt ?? run.queuedAt) > GIVEN_UP_AFTER_MS;
    if (isOld || run.params['reported'] === true) continue;
    try {
      await deps.post(reportOf(run));
      await deps.runs.keep(run.runId, { reported: true });
    } catch (error) {
      deps.log.warn(
        { runId: run.runId, reason: errorLine(error) },
        'The report could not be posted to NOTIFY_URL',
      );
      return;
    }
  }
}
