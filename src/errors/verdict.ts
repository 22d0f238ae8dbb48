/** The verdicts, from best to worst. */
export const VERDICTS = [
  'complete',
  'incomplete',
  'suspicious',
  'failed',
] as const;

/**
 * How a run ended. A verdict always comes with its evidence, because "succeeded, 0 rows"
 * alone proves nothing.
 */
export type Verdict = (typeof VERDICTS)[number];

export interface VerdictWithEvidence {
  readonly verdict: Verdict;
  /** The evidence as plain JSON; bigints are decimal strings. */
  readonly evidence: Readonly<Record<string, unknown>>;
}

/** Returns the most severe of the verdicts; `complete` if there are none. */
export function worst(verdicts: readonly Verdict[]): Verdict {
  return verdicts.reduce<Verdict>(
    (left, right) =>
      VERDICTS.indexOf(left) >= VERDICTS.indexOf(right) ? left : right,
    'complete',
  );
}
