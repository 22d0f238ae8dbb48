/** What a followed run reports, as lines of progress in the terminal. */
import type { ProgressLine } from '../../runs/job.ts';
import type { Run } from '../../runs/store/run.ts';
import type { CommandContext } from '../context.ts';
import type { ProgressUpdate } from '../output/progress.ts';

interface ShownLine {
  readonly task: ReturnType<CommandContext['progress']['task']>;
  readonly isPart: boolean;
}

/** Keeps one progress task for each line that a run reports; a line that is reported no more has ended. */
export class RunView {
  readonly #context: CommandContext;
  readonly #tasks = new Map<string, Map<string, ShownLine>>();
  readonly #ended = new Set<string>();

  constructor(context: CommandContext) {
    this.#context = context;
  }

  /** @param lines none where nothing is known at the moment: what was shown stays */
  show({ runId }: Run, lines: readonly ProgressLine[]): void {
    if (lines.length === 0 || this.#ended.has(runId)) return;
    const shown = this.#tasks.get(runId) ?? new Map<string, ShownLine>();
    this.#tasks.set(runId, shown);
    for (const [label, ended] of shown) {
      if (lines.some((line) => line.label === label)) continue;
      shown.delete(label);
      end(ended);
    }
    for (const line of lines) {
      const known = shown.get(line.label);
      const task = known?.task ?? this.#context.progress.task(line.label);
      shown.set(line.label, { task, isPart: line.isPart === true });
      task.update(updateOf(line));
    }
  }

  /** The run is over, and so is every line of it. */
  finish({ runId }: Run): void {
    if (this.#ended.has(runId)) return;
    this.#ended.add(runId);
    for (const ended of this.#tasks.get(runId)?.values() ?? []) end(ended);
  }
}

function end({ task, isPart }: ShownLine): void {
  if (isPart) task.drop();
  else task.finish();
}

export function updateOf(line: ProgressLine): ProgressUpdate {
  return {
    done: BigInt(line.done),
    unit: line.unit,
    ...(line.total === undefined ? {} : { total: BigInt(line.total) }),
    ...(line.note === undefined ? {} : { note: line.note }),
  };
}
