/** One walk in a process of its own, to be killed: `walker.ts <source> <database> <redis> <list> <run> <page size>`. */
import { createLog } from '../../src/core/log.ts';
import { openSource } from '../../src/source/source.ts';
import { openRedisState } from '../../src/state/redis-state.ts';
import { tolerantState } from '../../src/state/tolerant-state.ts';
import { walkList } from '../../src/walk/walk.ts';
import { openWarehouse } from '../../src/postgres/database.ts';
import { WalkStore } from '../../src/walk/store/walk-store.ts';
import { sourceConfig } from './source-config.ts';

const [sourceUrl = '', databaseUrl = '', redisUrl = '', list = '', runId = '', pageSize = '10'] =
  process.argv.slice(2);
if (list !== 'parties' && list !== 'checkpoints') throw new Error(`no list: ${list}`);
const log = createLog('silent');
await using source = openSource(sourceConfig(sourceUrl), {});
await using warehouse = openWarehouse({ url: databaseUrl, onIdleError: () => undefined });
const redis = openRedisState({ url: redisUrl, prefix: 'walker', onConnectionError: () => undefined });
const { verdict, evidence } = await walkList(
  { list, runId, kind: 'walk', pageSize: Number(pageSize) },
  {
    source: source.lists,
    books: new WalkStore(warehouse),
    hints: tolerantState(redis, { log }),
    log,
    onProgress: ({ up, down }) => process.stdout.write(`${up.pages + down.pages} pages\n`),
  },
  new AbortController().signal,
);
await redis.close();
process.stdout.write(`${JSON.stringify({ verdict, evidence })}\n`);
