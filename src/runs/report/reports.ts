/**
 * Reports of nightly runs: what the mirror held when one ended is published with its verdict, and compared later. Is
 * everything still there that a report says was held? Rows may only have been added.
 */
import { errorCode, PermanentError } from '../../core/errors.ts';
import type { VerdictWithEvidence } from '../../core/verdict.ts';
import { version } from '../../core/version.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { Problem } from '../../load/ports.ts';
import { type Holding, type NightlyReport, readReport, reportKey } from './report-form.ts';
import type { Completeness } from '../store/completeness.ts';
import type { ReportStore } from '../store/report-store.ts';
import type { Run } from '../store/run.ts';

const PROBLEMS_KEPT_MAX = 100;
/** Reports before the given one that are read: each names the ledgers that changed since the one before it. */
const REPORTS_MAX = 10_000;

interface ReportDeps {
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

export interface Comparison {
  readonly report: string;
  readonly heldAt: string;
  /** Ledgers whose rows up to then are exactly those of the report. */
  readonly same: number;
  /** Ledgers that hold more rows of the time up to then than the report: late entries, or asked again. */
  readonly grown: number;
  /** Ledgers whose segments were cut otherwise since then: compared by their number of rows. */
  readonly byCount: number;
  readonly lists: 'same' | 'by count';
  readonly problemCount: number;
  readonly problems: readonly Problem[];
}

/** Notes what speaks against the mirror. */
type Blame = (code: string, subject: string, message: string) => void;

export async function compareWithReport(
  given: NightlyReport,
  where: string,
  { store, objects }: ReportDeps,
  signal: AbortSignal,
): Promise<Comparison> {
  const problems: Problem[] = [];
  const blame: Blame = (code, subject, message) => void problems.push({ code, subject, message });
  const counts = { same: 0, grown: 0, byCount: 0 };
  for (const holding of await latestHoldings(given, objects, blame, signal)) {
    signal.throwIfAborted();
    counts[await compareLedger(holding, store, blame)] += 1;
  }
  const lists = await compareLists(given, store, blame, signal);
  const { rows } = await store.sumLedgers(signal);
  if (BigInt(rows) < BigInt(given.ledgers.rows))
    blame('LEDGERS_SHRANK', 'ledgers', `the ledgers hold ${rows} rows, the report ${given.ledgers.rows}`);
  return {
    report: where,
    heldAt: given.heldAt,
    ...counts,
    lists,
    problemCount: problems.length,
    problems: problems.slice(0, PROBLEMS_KEPT_MAX),
  };
}

/** Of each ledger the newest sum that the report, or one before it, tells. */
async function latestHoldings(
  given: NightlyReport,
  objects: ObjectStore,
  blame: Blame,
  signal: AbortSignal,
): Promise<readonly Holding[]> {
  const latest = new Map<string, Holding>();
  let report = given;
  for (let read = 0; read < REPORTS_MAX; read += 1) {
    for (const holding of report.changed) {
      const name = `${holding.partyId} ${holding.assetId ?? ''}`;
      if (!latest.has(name)) latest.set(name, holding);
    }
    const { previous } = report;
    if (previous === null) break;
    try {
      report = await readReport(objects, previous, signal);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      blame('REPORT_MISSING', previous, error.message);
      break;
    }
  }
  return [...latest.values()];
}

async function compareLedger(
  then: Holding,
  store: ReportStore,
  blame: Blame,
): Promise<'same' | 'grown' | 'byCount'> {
  const { isCut, held, sum } = await store.holdingNow(then);
  const subject = then.assetId === null ? then.partyId : `${then.partyId} ${then.assetId}`;
  const rows = BigInt(then.rows);
  if (held < rows)
    blame('LEDGER_SHRANK', subject, `up to ${then.closedTo} it holds ${held} rows, the report ${rows}`);
  else if (!isCut && held === rows && sum !== then.sum)
    blame('LEDGER_DIFFERS', subject, `up to ${then.closedTo} its ${held} rows are not those of the report`);
  if (isCut) return 'byCount';
  return held > rows ? 'grown' : 'same';
}

async function compareLists(
  given: NightlyReport,
  store: ReportStore,
  blame: Blame,
  signal: AbortSignal,
): Promise<Comparison['lists']> {
  const isYounger = await store.isYoungerThan(given.heldAt);
  for (const list of ['parties', 'checkpoints'] as const) {
    const then = given.lists[list];
    const now = await store.sumList(list, isYounger ? new Date().toISOString() : given.heldAt, signal);
    if (BigInt(now.rows) < BigInt(then.rows))
      blame('HELD_LIST_SHRANK', list, `the list holds ${now.rows} rows, the report ${then.rows}`);
    else if (!isYounger && now.sum !== then.sum)
      blame('HELD_LIST_DIFFERS', list, 'the rows that were there then are not those of the report');
  }
  return isYounger ? 'by count' : 'same';
}

/** Brings the runs of the reports in the store back into a database that does not know them. */
export async function restoreReports(
  { store, objects }: ReportDeps,
  signal: AbortSignal,
  onProblem: (key: string, error: PermanentError) => void,
): Promise<number> {
  let restored = 0;
  for await (const { key } of objects.list('runs/', signal)) {
    try {
      if (await store.restore(await readReport(objects, key, signal), key)) restored += 1;
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      onProblem(key, error);
    }
  }
  return restored;
}
