/**
 * Publishes the signed statement of a nightly run along with its report, and opens the
 * signing key.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import type { Config } from '../config/environment.ts';
import { pathOfSecret } from '../config/secret-files.ts';
import { errorLine, PermanentError } from '../errors/errors.ts';
import { type VerdictWithEvidence, worst } from '../errors/verdict.ts';
import { toStorableJson } from '../json/json-value.ts';
import type { Warehouse } from '../postgres/database.ts';
import { openKey } from '../proof/proof-key.ts';
import { storedFiles } from '../proof/log.ts';
import { readCheckpointNote } from '../proof/proof-files.ts';
import type { SignerKey } from '../proof/signed-note.ts';
import { ProofStore } from '../proof/store/proof-store.ts';
import {
  type LogChecks,
  type LogFindings,
  verifyLog,
} from '../proof/verify-log.ts';
import {
  type NightFacts,
  type NightLog,
  openNightLog,
  type ProofDeps,
  writeNight,
} from '../proof/write-night.ts';
import { decodeReport } from '../runs/nightly-report.ts';
import { publishReport } from '../runs/store/publish-report.ts';
import type { Run } from '../runs/store/run-store.ts';
import type { ObjectStore } from '../storage/object-store.ts';

type KeyConfig = Pick<Config, 'proofKey' | 'proofName' | 'dataDir'>;

/**
 * Opens the key that signs the log of nightly runs.
 * @throws the same errors as `openKey`
 */
export function openProofKey(
  { proofKey, proofName, dataDir }: KeyConfig,
  warehouse: Warehouse,
): Promise<SignerKey> {
  const places = {
    given: proofKey,
    ownFile: ownKeyFile({ dataDir }),
    name: proofName,
  };
  return openKey(places, new ProofStore(warehouse));
}

/** Returns the path of the key's file; undefined if PROOF_KEY is not from a file. */
export function proofKeyFile(config: Config): string | undefined {
  return config.proofKey === undefined
    ? ownKeyFile(config)
    : pathOfSecret(config, 'proofKey');
}

function ownKeyFile({ dataDir }: Pick<Config, 'dataDir'>): string {
  return join(dataDir, 'proof.key');
}

export interface NightProofDeps {
  readonly config: KeyConfig;
  readonly warehouse: Warehouse;
  readonly objects: ObjectStore;
}

/**
 * Publishes the report of a nightly run, and its statement. If the log cannot be
 * continued, the run becomes `suspicious` and the evidence gives the reason; the report
 * is still published.
 */
export async function publishNight(
  run: Run,
  ended: VerdictWithEvidence,
  { config, warehouse, objects }: NightProofDeps,
  signal: AbortSignal,
): Promise<VerdictWithEvidence> {
  const reporting = { warehouse, objects, signal };
  const store = new ProofStore(warehouse);
  let deps: ProofDeps;
  let log: NightLog;
  try {
    const key = await openProofKey(config, warehouse);
    deps = { store, objects, key, signal };
    log = await openNightLog(deps);
  } catch (error) {
    return publishReport(run, doubted(ended, error), reporting);
  }

  const reported = await publishReport(run, ended, reporting);
  try {
    const facts = await readNightFacts(reported, objects, signal);
    const proof = toStorableJson(await writeNight(facts, log, deps));
    return { ...reported, evidence: { ...reported.evidence, proof } };
  } catch (error) {
    return doubted(reported, error);
  }
}

/** Whether the text is a log's signed checkpoint rather than a report. */
export function isCheckpoint(text: string | undefined): boolean {
  return text?.includes('\n\n— ') === true;
}

/** Checks the log of nightly runs, if the mirror has one. */
export async function verifyNights(
  { config, warehouse, objects }: NightProofDeps,
  checks: Pick<LogChecks, 'isDeep' | 'kept' | 'signal'>,
): Promise<LogFindings | undefined> {
  const store = new ProofStore(warehouse);
  const { signal } = checks;
  const isBegun =
    (await store.readLog()) !== undefined ||
    (await readCheckpointNote(storedFiles(objects, signal))) !== undefined;
  if (!isBegun) return undefined;
  const key = await openProofKey(config, warehouse);
  return verifyLog({ store, objects, key, ...checks });
}

/**
 * Converts a permanent error to the verdict `suspicious`.
 * @throws any error that is not permanent, so that the job is delivered again
 */
function doubted(
  { verdict, evidence }: VerdictWithEvidence,
  error: unknown,
): VerdictWithEvidence {
  if (!(error instanceof PermanentError)) throw error;
  const { code } = error;
  return {
    verdict: worst([verdict, 'suspicious']),
    evidence: { ...evidence, proof: { code, problem: errorLine(error) } },
  };
}

/**
 * Reads the facts from the published report, so that the statement describes the same
 * instant as the report.
 */
async function readNightFacts(
  { evidence }: VerdictWithEvidence,
  objects: ObjectStore,
  signal: AbortSignal,
): Promise<NightFacts> {
  const key = String(evidence['report']);
  const bytes = await buffer(await objects.read(key, signal));
  const report = decodeReport(bytes, key);
  return {
    runId: report.runId,
    report: { key, sha256: createHash('sha256').update(bytes).digest('hex') },
    source: report.sourceUrl,
    heldAt: report.heldAt,
    verdict: report.verdict,
    covers: report.covers as NightFacts['covers'],
    doubts: report.openDoubts as NightFacts['doubts'],
    gaps: report.knownGaps as NightFacts['gaps'],
  };
}
