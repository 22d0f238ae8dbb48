/** The network that the demo mirrors, and the settings it is mirrored with. */
import { join } from 'node:path';
import { changeSettings, type Config } from '../../../config/environment.ts';
import { DAY_MICROS, floorSecond, nowMicros } from '../../../core/time.ts';
import { startSandbox, type Sandbox } from '../../../sandbox/http/server.ts';
import { keptGenesis } from '../sandbox.ts';

const PARTIES = 150;
const ENTRIES_MEAN = 300;
/** Three months at least, so that what is told by month has several. */
const HISTORY_DAYS = 75;

/** The same network at every run in this checkout, grown by the time that has passed. */
export async function startNetwork(dataDir: string): Promise<Sandbox> {
  const genesis = await keptGenesis(
    join(dataDir, 'sandbox.json'),
    floorSecond(nowMicros()) - BigInt(HISTORY_DAYS) * DAY_MICROS,
  );
  return startSandbox({
    seed: 'demo',
    release: '0.73',
    parties: PARTIES,
    entriesMean: ENTRIES_MEAN,
    historyMs: HISTORY_DAYS * 86_400_000,
    checkpointIntervalMs: 3_600_000,
    genesis,
    clock: nowMicros,
    rateLimit: 'none',
  });
}

/** Every configured URL is ignored: the demo touches nothing but its own folder. */
export function demoConfig(config: Config, dataDir: string, sourceUrl: string): Config {
  const changed = changeSettings(config, {
    dataDir,
    sourceUrl,
    sourceAuthorization: undefined,
    // The demo's source is on this machine and its own: nobody is to be spared.
    sourceRate: '1000',
    sourceExportConcurrency: '2',
    sourcePageSize: '100',
    sourceAssets: undefined,
    databaseUrl: undefined,
    redisUrl: undefined,
    objectStoreUrl: undefined,
    notifyUrl: undefined,
    nightlyParties: 'all',
    nightlyExportsMax: undefined,
  });
  return { ...changed, ambient: {} };
}
