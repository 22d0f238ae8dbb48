/** What a command needs that only looks: nothing of queues, source, metrics or lake is loaded for it. */
import type { StatusStore } from '../api/http/ports.ts';
import { ProgressHints } from '../runs/progress/progress-hints.ts';
import { RunStore } from '../runs/store/run-store.ts';
import { type BaseOptions, openBase } from './base.ts';
import { openStatusSource } from './status-source.ts';

export interface Reader extends AsyncDisposable {
  readonly status: StatusStore;
  readonly runs: RunStore;
  readonly progress: Pick<ProgressHints, 'read'>;
}

/** @throws as `openApp` */
export async function openReader(options: BaseOptions): Promise<Reader> {
  await using stack = new AsyncDisposableStack();
  const { warehouse, state } = await openBase(options, stack);
  const progress = stack.use(new ProgressHints(state));
  const owned = stack.move();
  return {
    status: openStatusSource(warehouse, options.config),
    runs: new RunStore(warehouse.db),
    progress,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}
