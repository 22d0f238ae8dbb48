/**
 * Merges as a nightly run does, and kills itself with -9 at a step: run as a child by the
 * test beside it.
 */
import { Pool } from 'pg';
import { createLog } from '../../../src/logging/log.ts';
import { mergeAll } from '../../../src/exports/merging/merge-all.ts';
import { ExportArchiveStore } from '../../../src/exports/store/export-archive.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { signal, World } from '../export-world.ts';

const [url = '', folder = '', runId = '', step = ''] = process.argv.slice(2);
const world = new World(url, new Pool({ connectionString: url }), folder);
const { db } = openWarehouse({ url, onIdleError: () => undefined });
await mergeAll(
  {
    ...world.deps(),
    archive: new ExportArchiveStore(db),
    runId,
    log: createLog('silent'),
    failpoint: (reached) => {
      if (reached === step) process.kill(process.pid, 'SIGKILL');
    },
  },
  signal,
);
