/** The most severe is the last. */
export const VERDICTS = ['complete', 'incomplete', 'suspicious', 'failed'] as const;

/** How a run ends: with a verdict and the evidence for it. "Succeeded, 0 rows" cannot be said here. */
export type Verdict = (typeof VERDICTS)[number];

export interface VerdictWithEvidence {
  readonly verdict: Verdict;
  /** JSON: bigints as decimal text. */
  readonly evidence: Readonly<Record<string, unknown>>;
}

/** The most severe of them; `complete` where there are none. */
export function worst(verdicts: readonly Verdict[]): Verdict {
  return verdicts.reduce<Verdict>(
    (left, right) => (VERDICTS.indexOf(left) >= VERDICTS.indexOf(right) ? left : right),
    'complete',
  );
}
