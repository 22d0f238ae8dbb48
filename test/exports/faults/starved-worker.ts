/**
 * A worker that says when it asks, and publishes when it is told to: run as a child by
 * the test beside it.
 */
import { once } from 'node:events';
import { randomUUID } from 'node:crypto';
import { Pool } from 'pg';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { LivenessLock } from '../../../src/postgres/liveness-lock.ts';
import { ExportStore } from '../../../src/exports/store/export-store.ts';
import { World } from '../export-world.ts';
import { LARGE, NOW } from './killed-case.ts';

const [url = '', folder = ''] = process.argv.slice(2);
await using warehouse = openWarehouse({ url, onIdleError: () => undefined });
await using presence = new LivenessLock(warehouse.pool);
await using world = new World(url, new Pool({ connectionString: url }), folder);
world.source.entries = LARGE;
const { verdict, requests } = await world.export(
  NOW,
  { runId: randomUUID() },
  {
    repository: new ExportStore(warehouse.db, presence.holder),
    failpoint: async (step) => {
      if (step !== 'asked') return;
      process.stdout.write('asked\n');
      await once(process.stdin, 'data');
    },
  },
);
process.stdout.write(`${verdict} ${requests}\n`);
process.exit(0);
