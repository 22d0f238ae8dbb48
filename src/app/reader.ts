/** What a command needs that only looks: nothing of queues, source, metrics or lake is loaded for it. */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { StatusStore } from '../api/http/ports.ts';
import type { Config } from '../config/environment.ts';
import { storeUrl } from '../objects/store-url.ts';
import { ProgressHints } from '../runs/progress-hints.ts';
import { ScheduledRuns } from '../runs/store/nightly/scheduled-runs.ts';
import { RunLogStore } from '../runs/store/run-log-store.ts';
import { RunStore } from '../runs/store/run-store.ts';
import { PostgresStatusStore } from '../runs/store/status-store.ts';
import { type BaseOptions, openBase } from './base.ts';
import { openStatusSource } from './status-source.ts';

export interface Reader extends AsyncDisposable {
  readonly status: StatusStore;
  readonly runs: RunStore;
  readonly runLogs: RunLogStore;
  readonly progress: Pick<ProgressHints, 'read'>;
}

/** @throws as `openApp` */
export async function openReader(options: BaseOptions): Promise<Reader> {
  const { config } = options;
  await using stack = new AsyncDisposableStack();
  const { warehouse, state } = await openBase(options, stack);
  const { db } = warehouse;
  const progress = stack.use(new ProgressHints(state));
  const owned = stack.move();
  return {
    status: openStatusSource({
      store: new PostgresStatusStore(warehouse),
      db,
      scheduled: new ScheduledRuns(db),
      objectsUrl: storeUrl(objectsAt(config)),
      schedule: { pattern: config.schedule, tz: config.scheduleTz },
    }),
    runs: new RunStore(db),
    runLogs: new RunLogStore(db),
    progress,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

export function objectsAt({ objectStoreUrl, dataDir }: Config): URL {
  return objectStoreUrl ?? pathToFileURL(join(dataDir, 'objects'));
}
