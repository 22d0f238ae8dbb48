/**
 * Exports one party's ledger on request from a command or the API. It runs ahead of
 * nightly work and then loads the result.
 */
import { z } from 'zod';
import { PermanentError } from '../errors/errors.ts';
import { id, instant } from '../ledger/json-fields.ts';
import type { VerdictWithEvidence } from '../errors/verdict.ts';
import { enqueueRun } from './enqueue.ts';
import { fixClock } from './fix-clock.ts';
import type { JobDeps } from './job.ts';
import { exportKey, reportTo } from './progress.ts';
import type { Run } from './store/run-store.ts';

/**
 * How long requests share one reading of the source's clock, which is the same for every
 * party.
 */
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
  // An export with an end must not stop early because of an old reading, so it reads the
  // clock anew. For an export without an end, any reading taken since the request will
  // do.
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
    {
      signal,
      onProgress: reportTo([run.runId, exportKey(run.subject)], deps.progress),
    },
  );
  const result = await refuseUnlisted(run.subject, exported, deps, signal);
  if (!load || result.evidence['segments'] === 0) return result;
  // One queued load serves many requests. A load that is already running may have passed
  // this party, so it does not count.
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
 * For a mistyped id the source returns the same empty export as for a party without
 * entries. If the export returned no rows, check that the source lists the party.
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
    'the source does not list this party, and sent no entries for it; ' +
    'check whether the id is right';
  return {
    verdict: 'incomplete',
    evidence: { ...evidence, reason, code: 'PARTY_NOT_LISTED' },
  };
}
