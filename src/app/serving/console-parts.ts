/** The console's parts over this mirror: its store, live progress, and what a run would ask. */
import { exportKey } from '../../runs/progress-hints.ts';
import { nextScheduledMs } from '../../runs/nightly/schedule.ts';
import { describeNightly } from '../../runs/nightly/nightly-preview.ts';
import type { ConsoleParts } from '../../api/console/console-ports.ts';
import { openConsoleStore } from '../../api/console/store/console-store.ts';
import { shownSettings } from '../../config/shown-settings.ts';
import type { App } from '../app.ts';
import { openConsoleLake } from './console-lake.ts';
import { openUpkeep } from './upkeep.ts';

export function consoleParts(app: App): ConsoleParts {
  const { config, jobs, store, warehouse } = app;
  const { schedule: pattern, scheduleTz: tz } = config;
  return {
    store: openConsoleStore(warehouse.pool),
    lake: openConsoleLake(config, store),
    settings: shownSettings(config),
    nextNightlyRun: () =>
      config.sourceUrl === undefined
        ? null
        : new Date(nextScheduledMs({ pattern, tz }, Date.now())).toISOString(),
    progress: (runId) => jobs.progress.read(runId),
    exportProgress: (partyId) => jobs.progress.read(exportKey(partyId)),
    preview: () => describeNightly(jobs, config),
    upkeep: openUpkeep(app),
  };
}
