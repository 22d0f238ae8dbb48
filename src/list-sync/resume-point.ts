/** Where a sync goes on: the last groups that are held, with their cursors; and how that is remembered. */
import { z } from 'zod';
import type { Group } from './groups.ts';
import type { ResumePointStore } from './ports.ts';

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
function readResumePoint(value: unknown, generationId: bigint): ResumePoint | undefined {
  const { data } = schema.safeParse(value);
  return data?.generationId === `${generationId}` ? data : undefined;
}

/** The groups that are held once a page has shown the `expected` last ones again and others behind them. */
export function advance(held: readonly Group[], expected: number, shown: readonly Group[]): readonly Group[] {
  return keepGroups([...held.slice(0, held.length - expected), ...shown]);
}

/** False where both claim the same commit and name different rows: one of them is damaged. */
function isSamePlace(left: ResumePoint, right: ResumePoint | undefined): boolean {
  if (left.sequence !== right?.sequence) return right !== undefined;
  const keys = (point: ResumePoint): string => JSON.stringify(point.groups.map((group) => group.keys));
  return keys(left) === keys(right);
}

/** As the evidence says it: the resume state lies in Redis, or in Postgres; the list's own row always in Postgres. */
export type ResumedFrom = 'resume state' | 'list row';

/** The resume point of a generation: the resume state decides, the list's own row where that has none. */
export function chooseResumePoint(
  generation: { readonly generationId: bigint; readonly resumePoint: unknown },
  remembered: unknown,
): { readonly point: ResumePoint | undefined; readonly from: ResumedFrom | undefined } {
  const fromState = readResumePoint(remembered, generation.generationId);
  const stored = readResumePoint(generation.resumePoint, generation.generationId);
  if (fromState !== undefined && isSamePlace(fromState, stored))
    return { point: fromState, from: 'resume state' };
  return { point: stored, from: stored === undefined ? undefined : 'list row' };
}

/**
 * Writes resume points after the commits: one write at a time, the newest wins, and a slow or unreachable store
 * delays no sync.
 */
export class ResumePointWriter implements AsyncDisposable {
  readonly #store: ResumePointStore;
  readonly #key: string;
  #next: ResumePoint | undefined;
  #writing: Promise<void> | undefined;

  constructor(store: ResumePointStore, list: string) {
    this.#store = store;
    this.#key = resumeKey(list);
  }

  write(point: ResumePoint): void {
    this.#next = point;
    this.#writing ??= this.#drain();
  }

  async #drain(): Promise<void> {
    for (let point = this.#take(); point !== undefined; point = this.#take()) {
      // Postgres has the same resume point; the store logs its own outage.
      await this.#store.set(this.#key, point, RESUME_POINT_TTL_MS).catch(() => undefined);
    }
    this.#writing = undefined;
  }

  #take(): ResumePoint | undefined {
    const point = this.#next;
    this.#next = undefined;
    return point;
  }

  /** Waits for the last write. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writing;
  }
}
