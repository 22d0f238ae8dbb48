/**
 * The outcome of one run of an export: its verdict, what it has published, and the
 * evidence for both.
 */
import type { Coverage } from '../catalog/coverage-rows.ts';
import { worst, type VerdictWithEvidence } from '../errors/verdict.ts';
import { earlier } from '../ledger/ranges.ts';
import { ceilSecond, formatInstant, type Micros } from '../time/time.ts';
import type { RunFindings } from './export-state.ts';
import type {
  ExportContext,
  ExportOutcome,
  ExportRequest,
} from './export-context.ts';
import type { Published } from './store/export-repository.ts';
import type { Answered } from './validation/assess-answer.ts';
import type { RowCounter } from './validation/row-counter.ts';

const NOTHING_PUBLISHED: Published = {
  rows: 0n,
  replacedRows: 0n,
  bytes: 0n,
  objectKeys: [],
};
const MIXED_NOTE =
  'earlier ranges hold only what left the party, later ones both sides: the ' +
  'source sends more than it did';
const NO_TIMES =
  'the rows have no times: all of them are one open segment, requested whole each ' +
  'time and replaced';

/** What a run has done and found when its loop ends. */
export interface EndedRun {
  /** The outcome that the last decision names. The findings can make it worse. */
  readonly ended: VerdictWithEvidence;
  readonly findings: RunFindings;
  /** The number of requests sent to the source. */
  readonly requests: number;
  readonly counter: RowCounter;
  /** The last response that was published. */
  readonly lastPublished: Answered | undefined;
  /** The number of segments that this attempt has published. */
  readonly segments: number;
  /** Keys of objects that an earlier run intended and this run published. */
  readonly adoptedKeys: readonly string[];
  /** The coverage of the ledger; undefined if a publication may have changed it. */
  readonly coverage: readonly Coverage[] | undefined;
  /** Ids of ranges that were compared with the source and found unchanged. */
  readonly compared: ReadonlySet<bigint>;
}

/** Returns the outcome of a run whose publications are all committed. */
export async function outcomeOf(
  run: EndedRun,
  context: ExportContext,
): Promise<ExportOutcome> {
  const { source, lease, request } = context;
  const { ended, findings, requests } = run;
  const { verdicts, overlap, doubts } = findings;
  const published = await publishedBy(run, context);
  const reason = futureNote(request);
  const since = await comparedSince(run, context);
  return {
    ...published,
    verdict: worst([
      ended.verdict,
      ...verdicts,
      reason === undefined ? 'complete' : 'incomplete',
    ]),
    requests,
    evidence: {
      party: lease.scope.partyId,
      asset: lease.scope.assetId ?? 'all',
      closedTo: formatInstant(request.clock.closedTo),
      comparedSince: since === undefined ? undefined : formatInstant(since),
      requests,
      publishedRows: String(published.rows),
      replacedRows: String(published.replacedRows),
      segments: published.objectKeys.length,
      ...describeAnswer(run.lastPublished),
      ...(reason === undefined ? {} : { reason }),
      ...run.counter.evidence(),
      overlap,
      findings: doubts.length === 0 ? undefined : doubts,
      ...(source.hasTimes ? {} : { times: NO_TIMES }),
      ...ended.evidence,
    },
  };
}

/** Sums the segments that this run has published, in this attempt or an earlier one. */
async function publishedBy(
  { segments, adoptedKeys }: EndedRun,
  { repository, lease, request }: ExportContext,
): Promise<Published> {
  const hasPublished =
    segments + adoptedKeys.length > 0 ||
    lease.coverage.some(
      (row) => row.runId === request.runId && row.objectKey !== undefined,
    );
  return hasPublished
    ? await repository.published(lease.scope, request.runId, adoptedKeys)
    : NOTHING_PUBLISHED;
}

/**
 * Finds the closed range that has gone longest without a comparison, and returns when
 * it was last compared with the source. The mirror may lack entries that the source has
 * added to the range since then.
 * @returns undefined if every range was compared in this run
 */
async function comparedSince(
  { coverage, compared }: EndedRun,
  { repository, lease, request }: ExportContext,
): Promise<Micros | undefined> {
  const known = coverage ?? (await repository.coverage(lease.scope));
  let since: Micros | undefined;
  for (const { open, runId, coverageId, checkedAt } of known) {
    const isOfThisRun = runId === request.runId || compared.has(coverageId);
    if (open || isOfThisRun || checkedAt === undefined) continue;
    since = earlier(checkedAt, since ?? checkedAt);
  }
  return since;
}

/**
 * Returns what the last published response showed about the source, as evidence.
 */
function describeAnswer(last: Answered | undefined): Record<string, unknown> {
  if (last === undefined) return {};
  const { bounds, evidence = 'seen before' } = last.learned;
  const { sides } = last.received.layout;
  const isMixed = last.target.coverage.some(
    (row) =>
      row.objectKey !== undefined &&
      row.sides !== 'unknown' &&
      row.sides !== sides &&
      !row.open,
  );
  const release =
    `filters wrongly (${evidence}): never divided, and everything that came in is ` +
    'sent each time';
  return {
    sides,
    release: bounds === 'broken' ? release : undefined,
    mixedSides: isMixed ? MIXED_NOTE : undefined,
  };
}

/**
 * Returns a note if the range ends after the source's time, because that part cannot be
 * proven.
 */
function futureNote({ to, clock }: ExportRequest): string | undefined {
  const { seen, closedTo } = clock;
  if (to === undefined || ceilSecond(to) <= seen) return undefined;
  return (
    `the range ends behind the source's time, ${formatInstant(seen)}; it is ` +
    `complete up to ${formatInstant(closedTo)}`
  );
}
