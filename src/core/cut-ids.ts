/** Ids as people copy them: whole, the beginning of one, or its beginning and end with a `…` between them. */
import { UsageError } from './errors.ts';

/** Whoever looks for an id asks for so many that begin as it does, the one that equals it first. */
export const CANDIDATES_MAX = 4;

export function splitCutId(given: string): { readonly prefix: string; readonly suffix: string } {
  const [prefix = '', suffix = ''] = given.split(/…|\.\.\./u);
  return { prefix, suffix };
}

/** Only hex ids are cut where they are shown: any other text without a `…`, or a few digits, is a whole id. */
export function isCutId(given: string): boolean {
  return /…|\.\.\.|^[0-9a-f]{4,}$/u.test(given);
}

interface Told<Candidate> {
  readonly idOf: (candidate: Candidate) => string;
  /** The option or command that was given the id. */
  readonly where: string;
  readonly noun: string;
  /** What to do where there is none. */
  readonly hint: string;
}

/**
 * @param candidates `CANDIDATES_MAX` at most, the one that equals `given` first
 * @throws UsageError where there is none, or several and none equals `given`
 */
export function chooseById<Candidate>(
  given: string,
  candidates: readonly Candidate[],
  { idOf, where, noun, hint }: Told<Candidate>,
): Candidate {
  const [first, ...others] = candidates;
  const shown = JSON.stringify(given.slice(0, 80));
  if (first === undefined) throw new UsageError([`${where}: there is no ${noun} ${shown}; ${hint}`]);
  if (others.length === 0 || idOf(first) === given) return first;
  const named = candidates.slice(0, CANDIDATES_MAX - 1).map((candidate) => idOf(candidate));
  const more = candidates.length < CANDIDATES_MAX ? '' : ' and more';
  throw new UsageError([
    `${where}: more than one ${noun} begins with ${shown}: ${named.join(', ')}${more}; give more of the id`,
  ]);
}
