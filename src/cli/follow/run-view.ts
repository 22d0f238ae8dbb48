/** What a followed run reports, as lines of progress in the terminal. */
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import type { Progress, ProgressTask } from '../output/progress.ts';

export interface RunView {
  /** @param lines none where nothing is known at the moment: what was shown stays */
  show(lines: readonly ProgressLine[]): void;
  /** The run is over, and so is every line of it. */
  finish(): void;
}

/** Keeps one progress task for each line that the run reports; a line that is reported no more has ended. */
export function openRunView(progress: Progress): RunView {
  const shown = new Map<string, { readonly task: ProgressTask; readonly isPart: boolean | undefined }>();
  let isOver = false;
  const endAllBut = (kept: readonly ProgressLine[]): void => {
    for (const [label, { task, isPart }] of shown) {
      if (kept.some((line) => line.label === label)) continue;
      shown.delete(label);
      if (isPart === true) task.drop();
      else task.finish();
    }
  };
  return {
    show: (lines) => {
      if (lines.length === 0 || isOver) return;
      endAllBut(lines);
      for (const line of lines) {
        const task = shown.get(line.label)?.task ?? progress.task(line.label);
        shown.set(line.label, { task, isPart: line.isPart });
        task.update(line);
      }
    },
    finish: () => {
      isOver = true;
      endAllBut([]);
    },
  };
}
