/** Where a sync goes on: the last groups that are held, with their cursors. */
import type { Group } from './groups.ts';

export interface ResumePoint {
  readonly generationId: string;
  /** Of the commit that it belongs to. A commit that builds on another one is refused. */
  readonly sequence: string;
  /** Oldest first. The last may have been cut by its page's border. */
  readonly groups: readonly Group[];
  /** The largest page that the source did not refuse, where it refused one. */
  readonly sizeMax?: number | undefined;
  /** The most rows that the source sends, whatever is asked. */
  readonly clamp?: number | undefined;
}

/** Behind each of them a page may be asked for: where one cursor fails, an older one may not. */
export const GROUPS_KEPT = 6;
/** Whole groups are kept beyond it only where there are fewer than two. */
const KEYS_KEPT_MAX = 3_000;
const TTL_MS = 30 * 86_400_000;
export const RESUME_POINT_TTL_MS = TTL_MS;

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
  if (!isFields(value) || value['generationId'] !== `${generationId}`) return undefined;
  const { sequence, groups, sizeMax, clamp } = value;
  if (typeof sequence !== 'string' || !/^\d{1,18}$/.test(sequence)) return undefined;
  if (!Array.isArray(groups) || groups.length === 0 || groups.length > GROUPS_KEPT) return undefined;
  if (!groups.every(isGroup)) return undefined;
  if (!isRowCount(sizeMax) || !isRowCount(clamp)) return undefined;
  return { generationId: `${generationId}`, sequence, groups, sizeMax, clamp };
}

function isFields(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function isGroup(value: unknown): value is Group {
  if (!isFields(value) || typeof value['cursor'] !== 'string' || value['cursor'] === '') return false;
  const { keys } = value;
  return Array.isArray(keys) && keys.length > 0 && keys.every((key) => typeof key === 'string');
}

function isRowCount(value: unknown): value is number | undefined {
  return value === undefined || (typeof value === 'number' && Number.isSafeInteger(value) && value > 0);
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
