/** Holds a mirror's outcome against what is right. Pure. */
import type { LedgerRow } from './ledger.ts';
import type { Expected, Verdict } from './cases/case.ts';

export interface Outcome {
  readonly verdict: Verdict;
  /**
   * The rows that the ledger holds for the party, repeated rows kept; columns that nobody
   * expects are ignored.
   */
  readonly published: readonly LedgerRow[];
  readonly truth: readonly LedgerRow[];
  /** Rows of before that may stay beside the truth. */
  readonly mayStay: readonly LedgerRow[];
  /** Rows that have to be there whatever the verdict is. */
  readonly mustHold: readonly LedgerRow[];
  readonly requests: number;
}

/** What is wrong, a line each; empty: the outcome is right. */
export function judgeOutcome(outcome: Outcome, expected: Expected): string[] {
  const missing = subtract(outcome.truth, outcome.published);
  const foreign = subtract(
    subtract(outcome.published, outcome.truth),
    outcome.mayStay,
  );
  const lacking = subtract(outcome.mustHold, outcome.published);
  const isComplete = outcome.verdict === 'complete' && !expected.cannotKnow;
  const mustBeExact = isComplete || expected.published === 'exactly';
  return [
    ...(expected.verdicts.includes(outcome.verdict)
      ? []
      : [
          `the verdict is ${outcome.verdict}, not ${expected.verdicts.join(' or ')}`,
        ]),
    ...(foreign.length > 0
      ? [
          `${foreign.length} rows are not in the truth, or too often: ${show(foreign)}`,
        ]
      : []),
    ...(mustBeExact && missing.length > 0
      ? [`${missing.length} rows of the truth are missing: ${show(missing)}`]
      : []),
    ...(expected.published === 'nothing' &&
    outcome.verdict !== 'complete' &&
    outcome.published.length > 0
      ? [`${outcome.published.length} rows are published, where none is right`]
      : []),
    ...(lacking.length > 0
      ? [
          `${lacking.length} rows are not published that had to be: ${show(lacking)}`,
        ]
      : []),
    ...(outcome.requests > expected.maxRequests
      ? [`${outcome.requests} requests, more than ${expected.maxRequests}`]
      : []),
  ];
}

/**
 * Rows of the first multiset that the second lacks. Columns count that the first's rows
 * name.
 */
function subtract(
  rows: readonly LedgerRow[],
  taken: readonly LedgerRow[],
): LedgerRow[] {
  const columns = Object.keys([...rows, ...taken][0] ?? {}).filter((column) =>
    [...rows.slice(0, 1), ...taken.slice(0, 1)].every((row) => column in row),
  );
  const left = new Map<string, number>();
  for (const row of taken)
    left.set(name(row, columns), (left.get(name(row, columns)) ?? 0) + 1);
  return rows.filter((row) => {
    const key = name(row, columns);
    const count = left.get(key) ?? 0;
    left.set(key, count - 1);
    return count <= 0;
  });
}

function name(row: LedgerRow, columns: readonly string[]): string {
  return columns.map((column) => row[column] ?? '').join('|');
}

function show(rows: readonly LedgerRow[]): string {
  return rows
    .slice(0, 2)
    .map((row) => `${row['vega_time']} ${row['quantity']}`)
    .join(', ');
}
