/** Where a sync goes on: the last groups that are held, with their cursors. */
import { z } from 'zod';
import type { Group } from './groups.ts';

/** Behind each of them a page may be asked for: where one cursor fails, an older one may not. */
const GROUPS_KEPT = 6;
/** Whole groups are kept beyond it only where there are fewer than two. */
const KEYS_KEPT_MAX = 3_000;
export const RESUME_POINT_TTL_MS = 30 * 86_400_000;

const rowCount = z.int().positive();
const schema = z.object({
  generationId: z.string(),
  /** Of the commit that it belongs to. A commit that builds on another one is refused. */
  sequence: z.string().regex(/^\d{1,18}$/),
  /** Oldest first. The last may have been cut by its page's border. */
  groups: z
    .array(z.object({ cursor: z.string().min(1), keys: z.array(z.string()).min(1).readonly() }))
    .min(1)
    .max(GROUPS_KEPT)
    .readonly(),
  /** The largest page that the source did not refuse, where it refused one. */
  sizeMax: rowCount.optional(),
  /** The most rows that the source sends, whatever is asked. */
  clamp: rowCount.optional(),
});

export type ResumePoint = Readonly<z.output<typeof schema>>;

export function resumeKey(list: string): string {
  return `list-sync:${list}`;
}

/** The last groups, as many as are of use. */
export function keepGroups(groups: readonly Group[]): readonly Group[] {
  const kept: Group[] = [];
  let keys = 0;
  for (const group of groups.toReversed()) {
    keys += group.keys.length;
    if (kept.length === GROUPS_KEPT || (kept.length >= 2 && keys > KEYS_KEPT_MAX)) break;
    kept.unshift(group);
  }
  return kept;
}

/** @returns undefined where the value is missing, malformed or of another generation */
export function readResumePoint(value: unknown, generationId: bigint): ResumePoint | undefined {
  const { data } = schema.safeParse(value);
  return data?.generationId === `${generationId}` ? data : undefined;
}

/** The groups that are held once a page has shown the `expected` last ones again and others behind them. */
export function advance(held: readonly Group[], expected: number, shown: readonly Group[]): readonly Group[] {
  return keepGroups([...held.slice(0, held.length - expected), ...shown]);
}

/** False where both claim the same commit and name different rows: one of them is damaged. */
export function isSamePlace(left: ResumePoint, right: ResumePoint | undefined): boolean {
  if (left.sequence !== right?.sequence) return right !== undefined;
  const keys = (point: ResumePoint): string => JSON.stringify(point.groups.map((group) => group.keys));
  return keys(left) === keys(right);
}
