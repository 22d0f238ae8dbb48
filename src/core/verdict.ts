/** How a run ends: with a verdict and the evidence for it. "Succeeded, 0 rows" cannot be said here. */
export type Verdict = 'complete' | 'incomplete' | 'suspicious' | 'failed';

export interface Outcome {
  readonly verdict: Verdict;
  /** JSON: bigints as decimal text. */
  readonly evidence: Readonly<Record<string, unknown>>;
}

const BY_SEVERITY: readonly Verdict[] = ['complete', 'incomplete', 'suspicious', 'failed'];

/** The most severe of them; `complete` where there are none. */
export function worst(verdicts: readonly Verdict[]): Verdict {
  return verdicts.reduce<Verdict>(
    (left, right) => (BY_SEVERITY.indexOf(left) >= BY_SEVERITY.indexOf(right) ? left : right),
    'complete',
  );
}
