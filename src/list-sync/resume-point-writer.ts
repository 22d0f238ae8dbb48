/**
 * Writes resume points after the commits: one write at a time, the newest wins, and a slow or unreachable store
 * delays no sync.
 */
import type { ResumePointStore } from './ports.ts';
import { RESUME_POINT_TTL_MS, resumeKey, type ResumePoint } from './resume-point.ts';

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
