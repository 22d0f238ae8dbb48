/** What a followed run reports, as lines of progress in the terminal. */
import type { ProgressLine } from '../../runs/progress-line.ts';
import type { Progress, ProgressTask } from '../output/progress.ts';

interface ShownLine {
  readonly task: ProgressTask;
  readonly isPart: boolean;
}

/** Keeps one progress task for each line that the run reports; a line that is reported no more has ended. */
export class RunView {
  readonly #progress: Progress;
  readonly #shown = new Map<string, ShownLine>();
  #isOver = false;

  constructor(progress: Progress) {
    this.#progress = progress;
  }

  /** @param lines none where nothing is known at the moment: what was shown stays */
  show(lines: readonly ProgressLine[]): void {
    if (lines.length === 0 || this.#isOver) return;
    for (const label of this.#shown.keys()) {
      if (!lines.some((line) => line.label === label)) this.#end(label);
    }
    for (const line of lines) {
      const task = this.#shown.get(line.label)?.task ?? this.#progress.task(line.label);
      this.#shown.set(line.label, { task, isPart: line.isPart === true });
      task.update(line);
    }
  }

  /** The run is over, and so is every line of it. */
  finish(): void {
    this.#isOver = true;
    for (const label of this.#shown.keys()) this.#end(label);
  }

  #end(label: string): void {
    const ended = this.#shown.get(label);
    this.#shown.delete(label);
    if (ended?.isPart === true) ended.task.drop();
    else ended?.task.finish();
  }
}
