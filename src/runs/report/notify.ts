/**
 * Tells NOTIFY_URL of runs that begin and end, and of one that ends well after one that did not: of those that
 * NOTIFY_ON names, by their kind or by what happened. At least once each, in their order; what cannot be told is
 * given up a day after the run ended.
 */
import { errorLine } from '../../core/errors.ts';
import type { Run } from '../store/run.ts';
import { readUntoldRuns, type UntoldRun } from '../store/run-facts.ts';
import type { JobDeps } from '../job.ts';
import type { NoticeType } from './post-report.ts';
import { isOver, runDocument } from '../run-document.ts';

const AT_ONCE_MAX = 50;

/** Sends what has not been sent yet; what cannot be sent now is tried again at the next call. */
export async function sendNotices({
  db,
  runs,
  log,
  notices,
}: Pick<JobDeps, 'db' | 'runs' | 'log' | 'notices'>): Promise<void> {
  if (notices === undefined) return;
  const tell = async (run: Run, id: string, type: NoticeType): Promise<void> => {
    if (isWanted(notices.wanted, run, type)) await notices.post({ id, type, run: runDocument(run) });
  };
  for (const untold of await readUntoldRuns(db, AT_ONCE_MAX)) {
    const run = await runs.get(untold.runId);
    if (run === undefined) continue;
    try {
      if (!untold.isStartTold) {
        const begun: Run = { ...run, state: 'running', verdict: null, finishedAt: null, evidence: {} };
        await tell(begun, `run_${run.runId}_started`, 'run.started');
        await runs.keep(run.runId, { told: 'started' });
      }
      if (!isOver(run)) continue;
      await tell(run, `run_${run.runId}`, classifyEnd(run, untold));
      await runs.keep(run.runId, { told: 'ended' });
    } catch (error) {
      log.warn({ runId: run.runId, reason: errorLine(error) }, 'A notice could not be posted to NOTIFY_URL');
      return;
    }
  }
}

function isWanted(wanted: readonly string[], { kind }: Run, type: NoticeType): boolean {
  return wanted.some((word) => word === 'all' || word === kind || `run.${word}` === type);
}

function classifyEnd({ state, verdict }: Run, { verdictBefore }: UntoldRun): NoticeType {
  if (state === 'cancelled') return 'run.cancelled';
  if (verdict !== 'complete') return 'run.failed';
  return verdictBefore === null || verdictBefore === 'complete' ? 'run.finished' : 'run.recovered';
}
