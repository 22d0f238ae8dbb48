/**
 * Writes where a walk stands into the resume state, behind the commits: one write at a time, the newest
 * wins, and a store that is slow or away holds nobody up.
 */
import type { WalkHints } from './ports.ts';

const TTL_MS = 30 * 86_400_000;

export class HintWriter implements AsyncDisposable {
  readonly #hints: WalkHints;
  readonly #key: string;
  #next: object | undefined;
  #writing: Promise<void> | undefined;

  constructor(hints: WalkHints, key: string) {
    this.#hints = hints;
    this.#key = key;
  }

  write(value: object): void {
    this.#next = value;
    this.#writing ??= this.#drain();
  }

  async #drain(): Promise<void> {
    for (let value = this.#take(); value !== undefined; value = this.#take()) {
      // A lost hint costs nothing; its store says when it is away.
      await this.#hints.set(this.#key, value, TTL_MS).catch(() => undefined);
    }
    this.#writing = undefined;
  }

  #take(): object | undefined {
    const value = this.#next;
    this.#next = undefined;
    return value;
  }

  /** Waits for the last write. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#writing;
  }
}
