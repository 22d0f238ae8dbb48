/** How a walk ended that could not be claimed complete: what is missing decides, and what was seen. */
import { worst, type Verdict } from '../core/verdict.ts';
import { VERDICT_OF } from './guards.ts';
import type { Violation } from './ports.ts';

/** What stands between a walk and `complete`. */
export interface Missing {
  /** `HEAD`, `TAIL`, a gap's trouble codes, … */
  readonly code: string;
  readonly belowKey?: string | undefined;
  readonly aboveKey?: string | undefined;
  readonly reasons?: readonly unknown[];
}

export function verdictOf(
  violations: readonly Violation[],
  missing: readonly Missing[],
): Exclude<Verdict, 'complete'> {
  const verdict = worst([
    ...violations.map(({ code }) => VERDICT_OF[code] ?? 'suspicious'),
    ...missing.map(({ code }) => (code === 'HEAD' ? 'failed' : 'incomplete')),
  ]);
  return verdict === 'complete' ? 'incomplete' : verdict;
}
