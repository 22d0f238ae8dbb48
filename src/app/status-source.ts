/** How the mirror stands, with how the work stands: who does it, and whether the schedule is kept. */
import { findMissedMs } from '../runs/nightly/make-up-missed.ts';
import { nextScheduledMs } from '../runs/nightly/schedule.ts';
import type { ListFacts, StatusStore, WorkFacts } from '../api/http/ports.ts';
import type { Config } from '../config/environment.ts';
import { isLakeDecidedHere } from '../lake/store/lake-store.ts';
import { readListState } from '../list-sync/store/list-state.ts';
import { storeUrl } from '../objects/store-url.ts';
import type { Database, Warehouse } from '../postgres/database.ts';
import { openStatusStore } from '../runs/store/status-store.ts';
import { WorkerRegistry } from '../worker/store/worker-registry.ts';
import { objectsAt } from './data-dir.ts';

/** @param config of this process: its schedule counts where no worker is running */
export function openStatusSource(warehouse: Warehouse, config: Config): StatusStore {
  const { db } = warehouse;
  const store = openStatusStore(warehouse);
  const objectsUrl = storeUrl(objectsAt(config));
  const work = async (): Promise<WorkFacts> => {
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
  };
  return {
    ...store,
    facts: async () => {
      const [facts, found, lists, decided] = await Promise.all([
        store.facts(),
        work(),
        readLists(db),
        isLakeDecidedHere(db, objectsUrl),
      ]);
      return { ...facts, work: found, lists, lakeCommitsDecidedBy: decided ? 'database' : 'store' };
    },
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
