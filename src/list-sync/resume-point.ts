/** Where a sync goes on: the last groups that are held, with their cursors; and how that is remembered. */
import { z } from 'zod';
import type { Group } from './groups.ts';
import type { ListName, ResumePointStore } from './ports.ts';

/** Behind each of them a page may be asked for: where one cursor fails, an older one may not. */
const GROUPS_KEPT = 6;
/** Whole groups are kept beyond it only where there are fewer than two. */
const KEYS_KEPT_MAX = 3_000;
const RESUME_POINT_TTL_MS = 30 * 86_400_000;

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

/** A page or claim builds on a resume point that the generation has gone on from. */
export class StaleResumePoint extends Error {}

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

/** As the evidence says it: the resume state lies in Redis, or in Postgres; the list's own row always in Postgres. */
export type ResumedFrom = 'resume state' | 'list row';

/** The resume point of a generation: the resume state decides, the list's own row where that has none. */
export function chooseResumePoint(
  generation: { readonly generationId: bigint; readonly resumePoint: unknown },
  remembered: unknown,
): { readonly point: ResumePoint | undefined; readonly from: ResumedFrom | undefined } {
  const [state, row] = [remembered, generation.resumePoint].map((value) => {
    const { data } = schema.safeParse(value);
    return data?.generationId === `${generation.generationId}` ? data : undefined;
  });
  if (row === undefined) return { point: undefined, from: undefined };
  const keysOf = ({ groups }: ResumePoint): string => JSON.stringify(groups.map(({ keys }) => keys));
  // Where both claim the same commit and name different rows, one of them is damaged.
  const isUsable = state !== undefined && (state.sequence !== row.sequence || keysOf(state) === keysOf(row));
  return isUsable ? { point: state, from: 'resume state' } : { point: row, from: 'list row' };
}

/**
 * The resume state of a list. Written after the commits: one write at a time, the newest wins, and a slow or
 * unreachable store delays no sync.
 */
export class ResumePoints implements AsyncDisposable {
  readonly #store: ResumePointStore;
  readonly #key: string;
  #next: ResumePoint | undefined;
  #writing: Promise<void> | undefined;

  constructor(store: ResumePointStore, list: ListName) {
    this.#store = store;
    this.#key = `list-sync:${list}`;
  }

  /** @returns undefined where there is none, or its store is away: Postgres has the same, and the store logs its outage */
  read(): Promise<unknown> {
    return this.#store.get(this.#key).catch(() => undefined);
  }

  write(point: ResumePoint): void {
    this.#next = point;
    this.#writing ??= this.#drain();
  }

  async #drain(): Promise<void> {
    while (this.#next !== undefined) {
      const point = this.#next;
      this.#next = undefined;
      await this.#store.set(this.#key, point, RESUME_POINT_TTL_MS).catch(() => undefined);
    }
    this.#writing = undefined;
  }

  /** Waits for the last write. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writing;
  }
}
