import { createLog } from '../src/core/log.ts';
import { startEmbeddedPostgres } from '../src/embedded/postgres.ts';
import { FileStore } from '../src/objects/file-store.ts';
import { openWarehouse } from '../src/warehouse/database.ts';
import { migrate } from '../src/warehouse/migrate.ts';
import { publishLedger } from './load-ledger.ts';
import { loadAll } from '../src/load/load-all.ts';
import { LoadStore } from '../src/warehouse/load-store.ts';
import { writeFileSync } from 'node:fs';
const pg = await startEmbeddedPostgres({
  dataDir: '/tmp/lakeb/pg',
  log: createLog('warn'),
  signal: new AbortController().signal,
});
const warehouse = openWarehouse({ url: pg.connectionString, onIdleError: () => undefined });
await migrate(warehouse.db);
const objects = new FileStore('/tmp/lakeb/pgobjects');
await publishLedger(warehouse.pool, objects, 1_000_000, 4);
const s = performance.now();
await loadAll({ books: new LoadStore(warehouse), objects }, new AbortController().signal);
console.log('load', (performance.now() - s) / 1000);
await warehouse.pool.query('vacuum analyze mirror.ledger_entries');
writeFileSync('/tmp/lakeb/pgurl', pg.connectionString);
console.log('ready');
await new Promise((r) => setTimeout(r, 5_400_000));
