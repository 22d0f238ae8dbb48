/**
 * How the mirror stands, with how the work stands: who does it, and whether the schedule is kept. A command that only
 * looks loads this, and nothing of queues, source, metrics or lake.
 */
import type { ListFacts, StatusStore, WorkFacts } from '../api/http/ports.ts';
import type { Config } from '../config/environment.ts';
import { isLakeDecidedHere } from '../lake/store/lake-store.ts';
import { readListState } from '../list-sync/store/list-state.ts';
import { storeUrl } from '../objects/store-url.ts';
import type { Database, Warehouse } from '../postgres/database.ts';
import { findMissedMs } from '../runs/nightly/start-scheduled.ts';
import { nextScheduledMs } from '../runs/nightly/scheduled-times.ts';
import { ProgressHints } from '../runs/progress/progress-hints.ts';
import { RunStore } from '../runs/store/run-store.ts';
import { openStatusStore } from '../runs/store/status-store.ts';
import { WorkerRegistry } from '../worker/store/worker-registry.ts';
import { type BaseOptions, openBase } from './base.ts';
import { objectsAt } from './data-dir.ts';

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

/** @param config of this process: its schedule counts where no worker is running */
export function openStatusSource(warehouse: Warehouse, config: Config): StatusStore {
  const { db } = warehouse;
  const store = openStatusStore(warehouse);
  const objectsUrl = storeUrl(objectsAt(config));
  return {
    ...store,
    facts: async () => {
      const [facts, work, lists, isDecidedHere] = await Promise.all([
        store.facts(),
        readWork(db, config),
        readLists(db),
        isLakeDecidedHere(db, objectsUrl),
      ]);
      return { ...facts, work, lists, lakeCommitsDecidedBy: isDecidedHere ? 'database' : 'store' };
    },
  };
}

async function readWork(db: Database, config: Config): Promise<WorkFacts> {
  const nowMs = Date.now();
  const { workers, isScheduled, schedule: working } = await new WorkerRegistry(db).facts();
  const schedule = working ?? { pattern: config.schedule, tz: config.scheduleTz };
  const isExpected = isScheduled || workers > 0;
  const missedMs = isExpected ? await findMissedMs(schedule, db, nowMs) : undefined;
  return {
    workers,
    nextSlot: workers === 0 ? null : new Date(nextScheduledMs(schedule, nowMs)).toISOString(),
    missedSlot: missedMs === undefined ? null : new Date(missedMs).toISOString(),
  };
}

async function readLists(db: Database): Promise<ListFacts[]> {
  const states = await readListState(db);
  return states.map(({ list, doubts, gaps, lastAuditAt }) => ({
    list,
    doubts: doubts.map(({ code, seen, since }) => ({
      code,
      message: typeof seen['message'] === 'string' ? seen['message'] : code,
      since,
    })),
    gaps: gaps.map(({ gapId: _gapId, ...gap }) => gap),
    lastAuditAt,
  }));
}
