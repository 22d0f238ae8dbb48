/** The verdicts, from the best to the most severe. */
export const VERDICTS = [
  'complete',
  'incomplete',
  'suspicious',
  'failed',
] as const;

/**
 * How a run ended. A verdict always comes with its evidence, so that "succeeded, 0 rows"
 * is not an answer.
 */
export type Verdict = (typeof VERDICTS)[number];

export interface VerdictWithEvidence {
  readonly verdict: Verdict;
  /** The evidence as plain JSON; bigints are decimal text. */
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
