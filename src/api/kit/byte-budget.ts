/**
 * An hourly byte budget that refills at a constant rate. Bytes that were taken for a
 * response but not sent are returned to the budget.
 */
const HOUR_MS = 3_600_000;

export class ByteBudget {
  readonly #bytesPerHour: number;
  readonly #nowMs: () => number;
  #left: number;
  #countedAtMs: number;

  /** @param nowMs returns the time of a monotonic clock */
  constructor(bytesPerHour: number, nowMs = () => performance.now()) {
    this.#bytesPerHour = bytesPerHour;
    this.#nowMs = nowMs;
    this.#left = bytesPerHour;
    this.#countedAtMs = nowMs();
  }

  /**
   * Takes all the bytes or none. A response that is larger than the whole budget may
   * start when the budget is full; otherwise it could never start.
   * @returns 0 if the bytes were taken; otherwise how many seconds to wait before trying
   *   again
   */
  take(bytes: number): number {
    this.#fill();
    const needed = Math.min(bytes, this.#bytesPerHour);
    if (this.#left < needed) {
      const waitMs = ((needed - this.#left) / this.#bytesPerHour) * HOUR_MS;
      return Math.ceil(waitMs / 1_000);
    }
    this.#left -= bytes;
    return 0;
  }

  giveBack(bytes: number): void {
    this.#fill();
    this.#left = Math.min(this.#left + bytes, this.#bytesPerHour);
  }

  #fill(): void {
    const nowMs = this.#nowMs();
    const filled = ((nowMs - this.#countedAtMs) / HOUR_MS) * this.#bytesPerHour;
    this.#left = Math.min(this.#left + filled, this.#bytesPerHour);
    this.#countedAtMs = nowMs;
  }
}
