/**
 * Where a sync goes on: the last groups that are held, with their cursors; and how that
 * is remembered.
 */
import { z } from 'zod';
import type { Group } from './overlap.ts';
import type { ListName, ResumePointStore } from './ports.ts';

/**
 * Behind each of them a page may be asked for: where one cursor fails, an older one may
 * not.
 */
const GROUPS_KEPT = 6;
/** Whole groups are kept beyond it only where there are fewer than two. */
const KEYS_KEPT_MAX = 3_000;
const RESUME_POINT_TTL_MS = 30 * 86_400_000;

const rowCount = z.int().positive();
const schema = z.object({
  generationId: z.string(),
  /** The sequence of its commit. A commit that builds on another one is refused. */
  sequence: z.string().regex(/^\d{1,18}$/),
  /** Oldest first. The last may have been cut by its page's border. */
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
  /** The largest page that the source did not refuse, where it refused one. */
  sizeMax: rowCount.optional(),
  /** The most rows that the source sends, whatever is asked. */
  clamp: rowCount.optional(),
});

export type ResumePoint = Readonly<z.output<typeof schema>>;

/** A page or claim builds on a resume point that the generation has gone on from. */
export class StaleResumePoint extends Error {}

/** The last groups, as many as are of use. */
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
 * As the evidence says it: the resume state lies in Redis, or in Postgres; the list's own
 * row always in Postgres.
 */
export type ResumedFrom = 'resume state' | 'list row';

/**
 * The resume point of a generation: the resume state decides, the list's own row where
 * that has none.
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
  // Where both claim the same commit and name different rows, one of them is damaged.
  const isUsable =
    state !== undefined &&
    (state.sequence !== row.sequence || keysOf(state) === keysOf(row));
  return isUsable
    ? { point: state, from: 'resume state' }
    : { point: row, from: 'list row' };
}

export interface ResumePoints extends AsyncDisposable {
  /**
   * @returns undefined if there is none, or its store is away: Postgres has the same,
   *   and the store logs its outage
   */
  read(): Promise<unknown>;
  write(point: ResumePoint): void;
}

/**
 * The resume state of a list. Written after the commits: one write at a time, the newest
 * wins, and a slow or unreachable store delays no sync. Disposing of it waits for the
 * last write.
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
