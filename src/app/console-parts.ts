/** The console's parts over this mirror: its store, live progress, and what its buttons begin. */
import { CronExpressionParser } from 'cron-parser';
import { enqueueRun } from '../runs/enqueue.ts';
import { exportKey } from '../runs/progress-hints.ts';
import type { ConsoleParts } from '../api/console/console-ports.ts';
import { PostgresConsoleStore } from '../api/console/store/console-store.ts';
import type { NewRun } from '../runs/store/run-store.ts';
import { openLakeDesk } from './lake-desk.ts';
import type { App } from './app.ts';
import { shownSettings } from '../config/shown-settings.ts';

export function consoleParts({ config, jobs, warehouse }: App): ConsoleParts {
  const begin = async (wanted: Pick<NewRun, 'kind' | 'subject'>): Promise<{ id: string }> => {
    const [open] = await jobs.runs.list({
      kind: wanted.kind,
      states: ['queued', 'running'],
      limit: 1,
      ...subjectOf(wanted),
    });
    if (open !== undefined) return { id: open.runId };
    const run = await jobs.runs.create(wanted);
    await enqueueRun(run, jobs);
    return { id: run.runId };
  };
  const { schedule, scheduleTz } = config;
  return {
    store: new PostgresConsoleStore(warehouse.pool),
    lake: openLakeDesk(config),
    settings: shownSettings(config),
    nextNight: () =>
      config.sourceUrl === undefined
        ? null
        : CronExpressionParser.parse(schedule, { tz: scheduleTz }).next().toISOString(),
    progress: (runId) => jobs.progress.read(runId),
    exportProgress: (partyId) => jobs.progress.read(exportKey(partyId)),
    runNight: () => begin({ kind: 'nightly', subject: 'console' }),
    sync: (list) => begin({ kind: 'sync', subject: list }),
  };
}

/** There is one nightly run at a time, and one sync of each list. */
function subjectOf({ kind, subject }: Pick<NewRun, 'kind' | 'subject'>): { subject?: string } {
  return kind === 'nightly' ? {} : { subject };
}
