/**
 * Checks that everything listed in the report of a nightly run is still there. Rows may
 * only have been added.
 */
import { sql } from 'kysely';
import { PermanentError } from '../../errors/errors.ts';
import { formatCount, formatPlural } from '../../format/format.js';
import { addDigests } from '../../ledger/digest.ts';
import type { Problem } from '../../warehouse/ports.ts';
import { readRow } from '../../postgres/run-statement.ts';
import { statement } from '../../postgres/statement.ts';
import {
  type Holding,
  type NightlyReport,
  readReport,
} from '../nightly-report.ts';
import { type ReportDeps, sumLedgers, sumList } from './publish-report.ts';

const ACTION = 'compare what is held with a report';
const PROBLEMS_KEPT_MAX = 100;
/**
 * Maximum number of earlier reports to read. Each one lists only the ledgers that changed
 * since the one before.
 */
const REPORTS_MAX = 10_000;

export interface Comparison {
  readonly report: string;
  readonly heldAt: string;
  /** Ledgers whose rows up to the report's time are exactly those in the report. */
  readonly same: number;
  /**
   * Ledgers that now have more rows up to the report's time, because entries arrived late
   * or were requested again.
   */
  readonly grown: number;
  /**
   * Ledgers whose segments have been split or merged differently since then; only their
   * number of rows is compared.
   */
  readonly byCount: number;
  readonly lists: 'same' | 'by count';
  readonly problemCount: number;
  readonly problems: readonly Problem[];
}

interface Comparing extends ReportDeps {
  readonly given: NightlyReport;
  /** Records a finding against the mirror. */
  blame(this: void, code: string, subject: string, message: string): void;
}

export async function compareWithReport(
  given: NightlyReport,
  where: string,
  deps: ReportDeps,
): Promise<Comparison> {
  const problems: Problem[] = [];
  const blame: Comparing['blame'] = (code, subject, message) =>
    void problems.push({ code, subject, message });
  const comparing = { ...deps, given, blame };
  const counts = { same: 0, grown: 0, byCount: 0 };
  for (const holding of await readLatestHoldings(comparing)) {
    deps.signal.throwIfAborted();
    counts[await compareLedger(holding, comparing)] += 1;
  }
  const lists = await compareLists(comparing);
  const { rows } = await sumLedgers(comparing);
  if (BigInt(rows) < BigInt(given.ledgers.rows))
    blame(
      'LEDGERS_SHRANK',
      'ledgers',
      `the ledgers have ${formatPlural(rows, 'row')}, the report ` +
        formatCount(given.ledgers.rows),
    );
  const told = {
    problemCount: problems.length,
    problems: problems.slice(0, PROBLEMS_KEPT_MAX),
  };
  return { report: where, heldAt: given.heldAt, ...counts, lists, ...told };
}

/** Finds the newest sum of each ledger, in the report or an earlier one. */
async function readLatestHoldings(comparing: Comparing) {
  const { given, blame } = comparing;
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
      report = await readReport(previous, comparing);
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      blame('REPORT_MISSING', previous, error.message);
      break;
    }
  }
  return latest.values();
}

/**
 * Compares a ledger's current state with its sum in a report, up to the same instant. It
 * sums the segments that end by then. If a segment extends past that instant, only the
 * total number of rows can be compared.
 */
async function compareLedger(then: Holding, { warehouse, blame }: Comparing) {
  const { partyId, assetId } = then;
  const closedTo = sql`${then.closedTo}::timestamptz`;
  const holding = statement({
    isCut: 'boolean',
    held: 'bigint',
    digests: 'text[]',
  })`
      select "isCut", coalesce(case when "isCut" then rows else rows_then end, 0)::bigint as held, digests from (
        select sum(rows) as rows, sum(rows) filter (where to_time <= ${closedTo}) as rows_then,
               coalesce(bool_or(from_time < ${closedTo} and to_time > ${closedTo}), false) as "isCut",
               coalesce(array_agg(digest) filter (where to_time <= ${closedTo}), '{}') as digests
          from mirror.segments
         where status = 'current' and party_id = ${partyId}
           and (asset_id is not distinct from ${assetId} or asset_id is null or ${assetId}::text is null)) s`;
  const { isCut, held, digests } = await readRow(warehouse.db, ACTION, holding);
  const subject = assetId === null ? partyId : `${partyId} ${assetId}`;
  const rows = BigInt(then.rows);
  if (held < rows)
    blame(
      'LEDGER_SHRANK',
      subject,
      `up to ${then.closedTo} it has ` +
        `${formatPlural(held, 'row')}, the report ${formatCount(rows)}`,
    );
  else if (!isCut && held === rows && addDigests(digests) !== then.sum)
    blame(
      'LEDGER_DIFFERS',
      subject,
      `up to ${then.closedTo} its ${formatCount(held)} rows are not ` +
        'those of the report',
    );
  if (isCut) return 'byCount';
  return held > rows ? 'grown' : 'same';
}

async function compareLists(comparing: Comparing) {
  const { given, warehouse, blame } = comparing;
  const { heldAt, lists } = given;
  // If the database is younger than the report, its lists were read later, so only
  // their sizes can be compared.
  const age = statement({ isYounger: 'boolean' })`
      select exists (select from mirror.identity where created_at > ${heldAt}::timestamptz) as "isYounger"`;
  const { isYounger } = await readRow(warehouse.db, ACTION, age);
  for (const list of ['parties', 'checkpoints'] as const) {
    const then = lists[list];
    const now = await sumList(
      list,
      isYounger ? new Date().toISOString() : heldAt,
      comparing,
    );
    if (BigInt(now.rows) < BigInt(then.rows))
      blame(
        'HELD_LIST_SHRANK',
        list,
        `the list has ${formatPlural(now.rows, 'row')}, the report ` +
          formatCount(then.rows),
      );
    else if (!isYounger && now.sum !== then.sum)
      blame(
        'HELD_LIST_DIFFERS',
        list,
        'the rows that were there then are not those of the report',
      );
  }
  return isYounger ? 'by count' : 'same';
}
