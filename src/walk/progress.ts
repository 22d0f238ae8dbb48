/** Live numbers of a walk, for bars and logs: one line a direction, rates over the whole walk. */
import type { CommittedPage, Direction, ListName } from './ports.ts';

export interface DirectionProgress {
  readonly rows: number;
  readonly pages: number;
  readonly rowsPerSecond: number;
}

export interface WalkProgress {
  readonly list: ListName;
  readonly up: DirectionProgress;
  readonly down: DirectionProgress;
  /** Where both ends met, once they have. How many rows there are is known only then. */
  readonly seamKey: string | undefined;
}

const SECOND_MS = 1000;

export class ProgressMeter {
  readonly #list: ListName;
  readonly #report: (progress: WalkProgress) => void;
  readonly #startedMs = performance.now();
  readonly #counts = { up: { rows: 0, pages: 0 }, down: { rows: 0, pages: 0 } };
  #seamKey: string | undefined;

  constructor(list: ListName, report: (progress: WalkProgress) => void) {
    this.#list = list;
    this.#report = report;
  }

  add(page: CommittedPage): void {
    const direction: Direction = page.role === 'up' || page.role === 'tail' ? 'up' : 'down';
    this.#counts[direction].rows += page.rows;
    this.#counts[direction].pages += 1;
    this.#send();
  }

  closeSeam(key: string): void {
    this.#seamKey = key;
    this.#send();
  }

  #send(): void {
    const seconds = Math.max(performance.now() - this.#startedMs, 1) / SECOND_MS;
    const withRate = (count: { rows: number; pages: number }): DirectionProgress => ({
      ...count,
      rowsPerSecond: Math.round(count.rows / seconds),
    });
    this.#report({
      list: this.#list,
      up: withRate(this.#counts.up),
      down: withRate(this.#counts.down),
      seamKey: this.#seamKey,
    });
  }
}
