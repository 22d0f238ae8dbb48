/** How the mirror stands, with how the work stands: who does it, and whether the schedule is kept. */
import { missedScheduledMs } from '../runs/nightly/missed-run.ts';
import { nextScheduledMs } from '../runs/nightly/schedule.ts';
import type { ListFacts, StatusStore, WorkFacts } from '../api/http/ports.ts';
import type { Config } from '../config/environment.ts';
import { isLakeDecidedHere } from '../lake/store/lake-store.ts';
import { readListState } from '../list-sync/store/list-state.ts';
import { storeUrl } from '../objects/store-url.ts';
import type { Database, Warehouse } from '../postgres/database.ts';
import { ScheduledRuns } from '../runs/store/nightly/scheduled-runs.ts';
import { PostgresStatusStore } from '../runs/store/status-store.ts';
import { readWorkerFacts } from '../worker/store/work-facts.ts';
import { objectsAt } from './data-dir.ts';

/** @param config of this process: its schedule counts where no worker is running */
export function openStatusSource(warehouse: Warehouse, config: Config): StatusStore {
  const { db } = warehouse;
  const store = new PostgresStatusStore(warehouse);
  const scheduled = new ScheduledRuns(db);
  const objectsUrl = storeUrl(objectsAt(config));
  const work = async (): Promise<WorkFacts> => {
    const nowMs = Date.now();
    const { workers, isScheduled, schedule: working } = await readWorkerFacts(db);
    const schedule = working ?? { pattern: config.schedule, tz: config.scheduleTz };
    const isExpected = isScheduled || workers > 0;
    const missedMs = isExpected ? await missedScheduledMs(schedule, { scheduled }, nowMs) : undefined;
    return {
      workers,
      nextSlot: workers === 0 ? null : new Date(nextScheduledMs(schedule, nowMs)).toISOString(),
      missedSlot: missedMs === undefined ? null : new Date(missedMs).toISOString(),
    };
  };
  return {
    facts: async () => {
      const [facts, found, lists, decided] = await Promise.all([
        store.facts(),
        work(),
        readLists(db),
        isLakeDecidedHere(db, objectsUrl),
      ]);
      return { ...facts, work: found, lists, lakeCommitsDecidedBy: decided ? 'database' : 'store' };
    },
    runs: (question) => store.runs(question),
    run: (runId) => store.run(runId),
    logs: (runId, rowsMax, after) => store.logs(runId, rowsMax, after),
  };
}

async function readLists(db: Database): Promise<readonly ListFacts[]> {
  const states = await readListState(db);
  return states.map(({ list, doubts, gaps, lastAuditAt }) => ({
    list,
    doubts: doubts.map(({ code, seen, since }) => ({
      code,
      message: typeof seen['message'] === 'string' ? seen['message'] : code,
      since,
    })),
    gaps: gaps.map(({ belowKey, aboveKey, foundAt, isConfirmed }) => ({
      belowKey,
      aboveKey,
      foundAt,
      isConfirmed,
    })),
    lastAuditAt: lastAuditAt ?? null,
  }));
}
