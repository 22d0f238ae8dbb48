/**
 * One party's ledger, ordered by somebody: exported ahead of nightly work, and loaded
 * when it is published.
 */
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { id, instant } from '../ledger/json-fields.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import { enqueueRun } from './enqueue.ts';
import { fixClock, reportTo } from './nightly/export-ledgers.ts';
import type { JobDeps } from './job.ts';
import { exportKey } from './progress.ts';
import type { Run } from './store/run-store.ts';

/** Orders that come close together share what does not depend on their party. */
const CLOCK_AGE_MAX_MS = 2_000;

const params = z.object({
  assetId: id.optional(),
  from: instant.optional(),
  to: instant.optional(),
  again: z.boolean().optional(),
  load: z.boolean().default(true),
});

export async function exportOnDemand(
  run: Run,
  deps: JobDeps,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const { load, ...range } = params.parse(run.params);
  await deps.stages.catchUpWithStore(signal, run.subject);
  if (await deps.stages.isOtherNetwork(signal)) {
    throw new PermanentError(
      `Cannot export ${run.subject}: the source shows another network than the one that is held; check ` +
        "SOURCE_URL, and run 'ledger-mirror sync all'",
      { code: 'OTHER_NETWORK' },
    );
  }
  // A range with an end may end behind an older clock; one without holds all that was
  // there when it was ordered.
  const sinceMs = Math.min(
    CLOCK_AGE_MAX_MS,
    Date.now() - Date.parse(run.queuedAt),
  );
  const clock = await fixClock(run, deps, {
    signal,
    maxAgeMs: range.to === undefined ? sinceMs : 0,
  });
  const exported = await deps.stages.export(
    { runId: run.runId, partyId: run.subject, ...range, clock },
    { signal, onProgress: reportTo([run.runId, exportKey(run.subject)], deps) },
  );
  const result = await refuseUnlisted(run.subject, exported, deps, signal);
  if (!load || result.evidence['segments'] === 0) return result;
  // One load takes what many orders have published; one that is running may have passed
  // this party already.
  const [waiting] = await deps.runs.list({
    kind: 'load',
    states: ['queued'],
    limit: 1,
  });
  const loading =
    waiting ??
    (await deps.runs.create({ kind: 'load', subject: 'warehouse and lake' }));
  await enqueueRun(loading, deps);
  return {
    ...result,
    evidence: { ...result.evidence, loadRunId: loading.runId },
  };
}

/**
 * A source answers the export of a mistyped id as it answers that of a party without
 * entries. Without a row, the party has to be listed.
 */
async function refuseUnlisted(
  partyId: string,
  exported: VerdictWithEvidence,
  { stages }: JobDeps,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const { verdict, evidence } = exported;
  if (verdict !== 'complete' || evidence['publishedRows'] !== '0')
    return exported;
  const [known] = await stages.listedParties(partyId);
  if (known === partyId) return exported;
  const { evidence: found } = await stages.lookUpParty(partyId, signal);
  if (found['listed'] === true) return exported;
  const reason =
    'the source does not list this party, and brought no entry of it; see whether ' +
    'the id is right';
  return {
    verdict: 'incomplete',
    evidence: { ...evidence, reason, code: 'PARTY_NOT_LISTED' },
  };
}
