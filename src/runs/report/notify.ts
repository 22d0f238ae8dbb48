/**
 * Tells NOTIFY_URL of each run that begins and ends, and of one that ends well after one that did not. At least once
 * each, in their order; what cannot be told is given up a day after the run ended.
 */
import { errorLine } from '../../core/errors.ts';
import type { Run } from '../store/run-store.ts';
import type { UntoldRun } from '../store/untold-runs.ts';
import type { JobDeps } from '../job.ts';
import type { NoticeType } from './post-report.ts';

const AT_ONCE_MAX = 50;

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
export async function sendNotices({
  runs,
  log,
  post,
}: Pick<JobDeps, 'runs' | 'log' | 'post'>): Promise<void> {
  if (post === undefined) return;
  for (const untold of await runs.untold(AT_ONCE_MAX)) {
    const run = await runs.get(untold.runId);
    if (run === undefined) continue;
    try {
      if (!untold.isStartTold) {
        const begun = { ...run, verdict: undefined, finishedAt: undefined, evidence: {} };
        await post({ id: `run_${run.runId}_started`, type: 'run.started', report: reportOf(begun) });
        await runs.keep(run.runId, { told: 'started' });
      }
      if (run.state !== 'done' && run.state !== 'cancelled') continue;
      await post({ id: `run_${run.runId}`, type: endOf(run, untold), report: reportOf(run) });
      await runs.keep(run.runId, { told: 'ended' });
    } catch (error) {
      log.warn({ runId: run.runId, reason: errorLine(error) }, 'A notice could not be posted to NOTIFY_URL');
      return;
    }
  }
}

function endOf({ state, verdict }: Run, { verdictBefore }: UntoldRun): NoticeType {
  if (state === 'cancelled') return 'run.cancelled';
  if (verdict !== 'complete') return 'run.failed';
  return verdictBefore === undefined || verdictBefore === 'complete' ? 'run.finished' : 'run.recovered';
}
