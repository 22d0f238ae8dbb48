/** Is everything still there that a report says was held? Rows may only have been added. */
import { PermanentError } from '../../core/errors.ts';
import type { ObjectStore } from '../../objects/object-store.ts';
import type { Problem } from '../../load/ports.ts';
import type { ReportDeps } from './nightly-report.ts';
import { type Holding, type NightlyReport, readReport } from './report-form.ts';
import type { ReportStore } from '../store/report-store.ts';

const PROBLEMS_KEPT_MAX = 100;
/** Reports before the given one that are read: each names the ledgers that changed since the one before it. */
const REPORTS_MAX = 10_000;

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

export async function compareWithReport(
  given: NightlyReport,
  where: string,
  { store, objects }: ReportDeps,
  signal: AbortSignal,
): Promise<Comparison> {
  const problems: Problem[] = [];
  const counts = { same: 0, grown: 0, byCount: 0 };
  for (const holding of await latestHoldings(given, objects, problems, signal)) {
    signal.throwIfAborted();
    counts[await compareLedger(holding, store, problems)] += 1;
  }
  const lists = await compareLists(given, store, problems, signal);
  const now = await store.sumLedgers(signal);
  if (BigInt(now.rows) < BigInt(given.ledgers.rows)) {
    const message = `the ledgers hold ${now.rows} rows, the report ${given.ledgers.rows}`;
    problems.push({ code: 'LEDGERS_SHRANK', subject: 'ledgers', message });
  }
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
  problems: Problem[],
  signal: AbortSignal,
): Promise<readonly Holding[]> {
  const latest = new Map<string, Holding>();
  let report: NightlyReport | undefined = given;
  for (let read = 0; report !== undefined && read < REPORTS_MAX; read += 1) {
    for (const holding of report.changed) {
      const name = `${holding.partyId} ${holding.assetId ?? ''}`;
      if (!latest.has(name)) latest.set(name, holding);
    }
    report =
      report.previous === null ? undefined : await readPrevious(report.previous, objects, problems, signal);
  }
  return [...latest.values()];
}

async function readPrevious(
  key: string,
  objects: ObjectStore,
  problems: Problem[],
  signal: AbortSignal,
): Promise<NightlyReport | undefined> {
  try {
    return await readReport(objects, key, signal);
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    problems.push({ code: 'REPORT_MISSING', subject: key, message: error.message });
    return undefined;
  }
}

async function compareLedger(
  then: Holding,
  store: ReportStore,
  problems: Problem[],
): Promise<'same' | 'grown' | 'byCount'> {
  const now = await store.holdingNow(then);
  const subject = then.assetId === null ? then.partyId : `${then.partyId} ${then.assetId}`;
  const held = now.isCut ? now.rowsNow : BigInt(now.rows);
  if (held < BigInt(then.rows)) {
    const message = `up to ${then.closedTo} it holds ${held} rows, the report ${then.rows}`;
    problems.push({ code: 'LEDGER_SHRANK', subject, message });
  } else if (!now.isCut && held === BigInt(then.rows) && now.sum !== then.sum) {
    const message = `up to ${then.closedTo} its ${held} rows are not those of the report`;
    problems.push({ code: 'LEDGER_DIFFERS', subject, message });
  }
  if (now.isCut) return 'byCount';
  return held > BigInt(then.rows) ? 'grown' : 'same';
}

async function compareLists(
  given: NightlyReport,
  store: ReportStore,
  problems: Problem[],
  signal: AbortSignal,
): Promise<Comparison['lists']> {
  const isYounger = await store.isYoungerThan(given.heldAt);
  for (const list of ['parties', 'checkpoints'] as const) {
    const then = given.lists[list];
    const now = await store.sumList(list, isYounger ? new Date().toISOString() : given.heldAt, signal);
    if (BigInt(now.rows) < BigInt(then.rows)) {
      const message = `the list holds ${now.rows} rows, the report ${then.rows}`;
      problems.push({ code: 'HELD_LIST_SHRANK', subject: list, message });
    } else if (!isYounger && now.sum !== then.sum) {
      const message = 'the rows that were there then are not those of the report';
      problems.push({ code: 'HELD_LIST_DIFFERS', subject: list, message });
    }
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
