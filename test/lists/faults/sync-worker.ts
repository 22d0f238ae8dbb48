/**
 * One sync in a process of its own, to be killed: `sync-worker.ts <source> <database>
 * <redis> <list> <run> <page size>`.
 */
import { createLog } from '../../../src/logging/log.ts';
import { openSource } from '../../../src/source/source-client.ts';
import { openRedisState } from '../../../src/state/redis-state.ts';
import { tolerateOutages } from '../../../src/state/resume-state.ts';
import { syncList } from '../../../src/lists/sync-list.ts';
import { openWarehouse } from '../../../src/postgres/database.ts';
import { ListStore } from '../../../src/lists/store/list-store.ts';
import { localState, sourceConfig } from '../../support/source-config.ts';

const [
  sourceUrl = '',
  databaseUrl = '',
  redisUrl = '',
  list = '',
  runId = '',
  pageSize = '10',
] = process.argv.slice(2);
if (list !== 'parties' && list !== 'checkpoints')
  throw new Error(`no list: ${list}`);
const log = createLog('silent');
await using source = openSource(sourceConfig(sourceUrl), localState());
await using warehouse = openWarehouse({
  url: databaseUrl,
  onIdleError: () => undefined,
});
const redis = openRedisState(redisUrl, 'worker', () => undefined);
const { verdict, evidence } = await syncList(
  { list, runId, isAudit: false, pageSize: Number(pageSize) },
  {
    source: source.lists,
    store: new ListStore(warehouse.db),
    resumePoints: tolerateOutages(redis, log),
    onProgress: ({ pages }) => process.stdout.write(`${pages} pages\n`),
  },
  new AbortController().signal,
);
await redis.close();
process.stdout.write(`${JSON.stringify({ verdict, evidence })}\n`);
