/**
 * Tells whether `complete` is a lie: what the mirror holds against what the source has.
 * Pure.
 */
import { checkpointKey, type CheckpointRow } from './rows.ts';
import type { ListTruth } from './start.ts';

/** What to hold a run against. */
export interface Evidence {
  /**
   * Keys in the mirror's own order, oldest first; rows that it marks as gone are not
   * among them.
   */
  readonly held: readonly string[];
  readonly atStart: ListTruth;
  readonly atEnd: ListTruth;
}

export interface Judgement {
  /** Served when the run began and when it ended, and not held. */
  readonly missing: readonly string[];
  /** Held, and never this source's. */
  readonly foreign: readonly string[];
  /** Held twice or more. */
  readonly repeated: readonly string[];
  /** Held behind a row that is newer. */
  readonly misplaced: readonly string[];
  /** Held, once served, and served no longer: no lie before an audit. */
  readonly departed: readonly string[];
}

export function judgeList({ held, atStart, atEnd }: Evidence): Judgement {
  const holding = new Set(held);
  const ages = new Map(atEnd.rows.map(({ key, age }) => [key, age]));
  const lasting = atStart.rows.filter(({ key }) => ages.has(key));
  return {
    missing: lasting
      .filter(({ key }) => !holding.has(key))
      .map(({ key }) => key),
    foreign: [...holding].filter((key) => !atEnd.ever.has(key)),
    repeated: held.filter((key, at) => held.indexOf(key) !== at),
    misplaced: findMisplaced(held, ages),
    departed: [...holding].filter(
      (key) => atEnd.ever.has(key) && !ages.has(key),
    ),
  };
}

/**
 * `complete` over these rows is a lie. `judgesOrder` false: only what is held counts, not
 * in what order.
 */
export function isLie(judgement: Judgement, judgesOrder = true): boolean {
  const { missing, foreign, repeated, misplaced } = judgement;
  const places = judgesOrder ? misplaced : [];
  return [missing, foreign, repeated, places].some((keys) => keys.length > 0);
}

/** One line for a failing test. */
export function describeJudgement(judgement: Judgement): string {
  const parts = Object.entries(judgement) as [
    keyof Judgement,
    readonly string[],
  ][];
  const said = parts.filter(([, keys]) => keys.length > 0);
  const show = (keys: readonly string[]): string =>
    keys
      .slice(0, 3)
      .map((key) => key.slice(0, 24))
      .join(', ');
  return (
    said
      .map(([name, keys]) => `${keys.length} ${name} (${show(keys)})`)
      .join('; ') || 'nothing is wrong'
  );
}

export function checkpointKeys(rows: readonly CheckpointRow[]): string[] {
  return rows.map(checkpointKey);
}

/** Rows without a place, and rows that are served no longer, may stand anywhere. */
function findMisplaced(
  held: readonly string[],
  ages: ReadonlyMap<string, bigint | null>,
): string[] {
  let newest: bigint | null = null;
  return held.filter((key) => {
    const age = ages.get(key) ?? null;
    if (age === null) return false;
    const isMisplaced = newest !== null && age < newest;
    if (!isMisplaced) newest = age;
    return isMisplaced;
  });
}
