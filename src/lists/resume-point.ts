/**
 * The resume point of a sync (the last stored groups with their cursors), and how it is
 * saved.
 */
import { z } from 'zod';
import type { Group } from './overlap.ts';
import type { ListName, ResumePointStore } from './ports.ts';

/**
 * Maximum number of groups in a resume point. A page may be requested after any of
 * them: if one cursor fails, an older one may still work.
 */
const GROUPS_KEPT = 6;
/** Maximum number of keys in a resume point, unless fewer than two groups would fit. */
const KEYS_KEPT_MAX = 3_000;
const RESUME_POINT_TTL_MS = 30 * 86_400_000;

const rowCount = z.int().positive();
const schema = z.object({
  generationId: z.string(),
  /**
   * The sequence number of the commit that this point was saved with. A commit that
   * builds on a different number is refused.
   */
  sequence: z.string().regex(/^\d{1,18}$/),
  /** The groups, oldest first. The last may have been cut off at the end of its page. */
  groups: z
    .array(
      z.object({
        cursor: z.string().min(1),
        keys: z.array(z.string()).min(1).readonly(),
      }),
    )
    .min(1)
    .max(GROUPS_KEPT)
    .readonly(),
  /** The largest page size that the source accepts, if it has refused a larger one. */
  sizeMax: rowCount.optional(),
  /**
   * Maximum number of rows that the source sends in a page, whatever size is requested.
   */
  clamp: rowCount.optional(),
});

export type ResumePoint = Readonly<z.output<typeof schema>>;

/**
 * A page or claim builds on an outdated resume point: the generation has since
 * advanced.
 */
export class StaleResumePoint extends Error {}

/** Returns the last groups, as many as a resume point needs. */
export function keepGroups(groups: readonly Group[]): readonly Group[] {
  const kept: Group[] = [];
  let keys = 0;
  for (const group of groups.toReversed()) {
    keys += group.keys.length;
    if (
      kept.length === GROUPS_KEPT ||
      (kept.length >= 2 && keys > KEYS_KEPT_MAX)
    )
      break;
    kept.unshift(group);
  }
  return kept;
}

/**
 * Where a resume point came from, as named in the evidence. The resume state is in
 * Redis, or in Postgres if Redis is not used; the list's own row is always in Postgres.
 */
export type ResumedFrom = 'resume state' | 'list row';

/**
 * Chooses the resume point of a generation: the one in the resume state or, if that is
 * unusable, the one in the list row.
 */
export function chooseResumePoint(
  generation: { readonly generationId: bigint; readonly resumePoint: unknown },
  remembered: unknown,
): {
  readonly point: ResumePoint | undefined;
  readonly from: ResumedFrom | undefined;
} {
  const [state, row] = [remembered, generation.resumePoint].map((value) => {
    const { data } = schema.safeParse(value);
    return data?.generationId === `${generation.generationId}`
      ? data
      : undefined;
  });
  if (row === undefined) return { point: undefined, from: undefined };
  const keysOf = ({ groups }: ResumePoint): string =>
    JSON.stringify(groups.map(({ keys }) => keys));
  // If both name the same commit but have different rows, one of them is damaged.
  const isUsable =
    state !== undefined &&
    (state.sequence !== row.sequence || keysOf(state) === keysOf(row));
  return isUsable
    ? { point: state, from: 'resume state' }
    : { point: row, from: 'list row' };
}

export interface ResumePoints extends AsyncDisposable {
  /**
   * Reads the resume point from the resume state.
   * @returns undefined if there is no resume point or its store is unreachable;
   *   Postgres has the same resume point, and the store logs its outage
   */
  read(): Promise<unknown>;
  write(point: ResumePoint): void;
}

/**
 * Opens the resume state of a list. It is written after each commit, one write at a
 * time, and the newest point wins, so a slow or unreachable store delays no sync.
 * Disposing of it waits for the last write.
 */
export function openResumePoints(
  store: ResumePointStore,
  list: ListName,
): ResumePoints {
  const key = `list-sync:${list}`;
  let next: ResumePoint | undefined;
  let writing: Promise<void> | undefined;

  async function drain() {
    for (let point = next; point !== undefined; point = next) {
      next = undefined;
      await store.set(key, point, RESUME_POINT_TTL_MS).catch(() => undefined);
    }
    writing = undefined;
  }

  return {
    read: () => store.get(key).catch(() => undefined),
    write(point) {
      next = point;
      writing ??= drain();
    },
    [Symbol.asyncDispose]: async () => writing,
  };
}
