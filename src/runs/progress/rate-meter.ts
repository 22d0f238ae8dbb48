/** The present rate of a growing count: over the last seconds, so that it follows what happens now. */
interface Sample {
  readonly count: bigint;
  readonly atMs: number;
}

const WINDOW_MS = 10_000;
const SAMPLE_EVERY_MS = 250;

export class RateMeter {
  /** Oldest first; bounded by the window and the sampling interval. */
  #samples: Sample[] = [];
  #latest: Sample | undefined;

  add(count: bigint, atMs: number): void {
    const last = this.#samples.at(-1);
    // A count that falls is another count: a retry that began again.
    if (last !== undefined && count < last.count) this.#samples = [];
    this.#latest = { count, atMs };
    if (last === undefined || this.#samples.length === 0 || atMs - last.atMs >= SAMPLE_EVERY_MS) {
      this.#samples.push(this.#latest);
    }
    while ((this.#samples[1]?.atMs ?? Infinity) <= atMs - WINDOW_MS) this.#samples.shift();
  }

  /** 0 while nothing can be said. */
  get perSecond(): number {
    const [first] = this.#samples;
    if (first === undefined || this.#latest === undefined || this.#latest.atMs <= first.atMs) return 0;
    return (Number(this.#latest.count - first.count) * 1000) / (this.#latest.atMs - first.atMs);
  }
}
