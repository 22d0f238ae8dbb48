/** Live numbers of a sync, for bars and logs. */
import type { ListName } from './ports.ts';

export interface SyncProgress {
  readonly list: ListName;
  readonly rows: number;
  readonly pages: number;
  readonly rowsPerSecond: number;
  /** First the list is read; then the source has to show that it ends there. */
  readonly phase: 'reading' | 'proving the end';
}

const SECOND_MS = 1000;

export class ProgressMeter {
  readonly #list: ListName;
  readonly #report: (progress: SyncProgress) => void;
  readonly #startedMs = performance.now();
  #rows = 0;
  #pages = 0;
  #phase: SyncProgress['phase'] = 'reading';

  constructor(list: ListName, report: (progress: SyncProgress) => void) {
    this.#list = list;
    this.#report = report;
  }

  addPage(rows: number): void {
    this.#rows += rows;
    this.#pages += 1;
    this.#send();
  }

  enter(phase: SyncProgress['phase']): void {
    if (phase === this.#phase) return;
    this.#phase = phase;
    this.#send();
  }

  #send(): void {
    const seconds = Math.max(performance.now() - this.#startedMs, 1) / SECOND_MS;
    this.#report({
      list: this.#list,
      rows: this.#rows,
      pages: this.#pages,
      rowsPerSecond: Math.round(this.#rows / seconds),
      phase: this.#phase,
    });
  }
}
