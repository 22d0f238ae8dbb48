/** Publishes what the mirror held when a nightly run ended, and that run's verdict. */
import { errorCode } from '../../core/errors.ts';
import type { VerdictWithEvidence } from '../../core/verdict.ts';
import { version } from '../../core/version.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import { type NightlyReport, readReport, reportKey } from './report-form.ts';
import type { Completeness } from '../store/completeness.ts';
import type { ReportStore } from '../store/report-store.ts';
import type { Run } from '../store/run.ts';

export interface ReportDeps {
  readonly store: ReportStore;
  readonly objects: ObjectStore;
}

/**
 * Publishes the report of a run that is about to end so. Where a killed delivery of the run has published one already,
 * that one counts, and so does its verdict: what the store says and what the database says is the same.
 */
export async function publishReport(
  run: Run,
  result: VerdictWithEvidence,
  covers: Completeness,
  { store, objects }: ReportDeps,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const key = reportKey(run);
  const { settledAt, ...held } = await store.holdings(signal);
  const report: NightlyReport = {
    format: 1,
    program: version(),
    runId: run.runId,
    subject: run.subject,
    startedAt: run.startedAt ?? run.queuedAt,
    sourceUrl: run.sourceUrl,
    verdict: result.verdict,
    covers: { ...covers },
    ...held,
    evidence: { ...result.evidence },
  };
  let told = report;
  try {
    await objects.publishBytes(key, Buffer.from(`${JSON.stringify(report)}\n`), signal);
  } catch (error) {
    if (errorCode(error) !== 'OBJECT_CONFLICT') throw error;
    told = await readReport(objects, key, signal);
  }
  // What a killed delivery saw settled is not known: the next report names what has changed since the run began.
  await store.notePublished(run.runId, key, told.heldAt, told === report ? settledAt : report.startedAt);
  return { verdict: told.verdict, evidence: { ...told.evidence, report: key } };
}
