/** Looks at everything the configuration points to, and says what is wrong and what to do. */
import { mkdir, statfs } from 'node:fs/promises';
import { version } from '../core/version.ts';
import { errorLine } from '../core/errors.ts';
import { formatInstant, nowMicros } from '../core/time.ts';
import { openApp, type App, type AppOptions } from './app.ts';

export interface Finding {
  readonly what: string;
  readonly state: 'ok' | 'warning' | 'wrong' | 'skipped';
  readonly detail: string;
}

const FREE_BYTES_MIN = 2n * 2n ** 30n;
const POSTGRES_MAJOR_MIN = 15;
const CLOCK_SKEW_MAX_MS = 60_000;
const PROBE_KEY = 'probe/doctor.txt';

/** Each check stands alone: one that fails does not hide the others. */
export async function examine(options: AppOptions): Promise<readonly Finding[]> {
  const findings: Finding[] = [
    { what: 'version', state: 'ok', detail: `ledger-mirror ${version()}, Node ${process.versions.node}` },
  ];
  findings.push(await check('data directory', () => examineDataDir(options.config.dataDir)));
  let app: App;
  try {
    app = await openApp(options);
  } catch (error) {
    findings.push({ what: 'database and queues', state: 'wrong', detail: errorLine(error) });
    return findings;
  }
  await using opened = app;
  findings.push(await check('database', () => examineDatabase(opened)));
  findings.push(await check('queues', () => examineQueues(opened)));
  findings.push(await check('object store', () => examineStore(opened, options.signal)));
  findings.push(await check('source', () => examineSource(opened, options.signal)));
  return findings;
}

type Result = Omit<Finding, 'what'>;

async function check(what: string, work: () => Promise<Result>): Promise<Finding> {
  try {
    return { what, ...(await work()) };
  } catch (error) {
    return { what, state: 'wrong', detail: errorLine(error) };
  }
}

async function examineDataDir(dir: string): Promise<Result> {
  await mkdir(dir, { recursive: true });
  const { bavail, bsize } = await statfs(dir, { bigint: true });
  const freeBytes = bavail * bsize;
  const detail = `${dir}, ${freeBytes / 2n ** 30n} GiB free`;
  return freeBytes < FREE_BYTES_MIN
    ? { state: 'warning', detail: `${detail}: little; point DATA_DIR at a larger disk` }
    : { state: 'ok', detail };
}

async function examineDatabase(app: App): Promise<Result> {
  const { rows } = await app.warehouse.pool.query<{ server: string; offset: string }>(
    `select current_setting('server_version') as server, extract(epoch from clock_timestamp())::text as offset`,
  );
  const [row] = rows;
  const major = Number.parseInt(row?.server ?? '0', 10);
  const where = app.config.databaseUrl === undefined ? 'embedded' : app.config.databaseUrl.host;
  const detail = `${where}, Postgres ${row?.server ?? 'unknown'}`;
  if (major < POSTGRES_MAJOR_MIN)
    return { state: 'wrong', detail: `${detail}: ${POSTGRES_MAJOR_MIN} or later is needed` };
  const skewMs = Math.abs(Number(row?.offset ?? 0) * 1_000 - Date.now());
  return skewMs > CLOCK_SKEW_MAX_MS
    ? {
        state: 'warning',
        detail: `${detail}: its clock differs from this machine's by ${Math.round(skewMs / 1_000)} s; set both by NTP`,
      }
    : { state: 'ok', detail };
}

async function examineQueues(app: App): Promise<Result> {
  await app.queues.counts('walk');
  const advice = await app.queues.advice();
  return advice.length === 0
    ? { state: 'ok', detail: app.queues.kind === 'redis' ? 'in Redis' : 'in Postgres (no REDIS_URL)' }
    : { state: 'warning', detail: advice.join('; ') };
}

/** Writes, reads and removes for real: rights differ by operation. */
async function examineStore(app: App, signal: AbortSignal): Promise<Result> {
  const content = Buffer.from(`ledger-mirror doctor ${formatInstant(nowMicros())}\n`);
  try {
    await app.store.remove(PROBE_KEY, signal);
    await app.store.publishBytes(PROBE_KEY, content, signal);
    const read: Buffer[] = [];
    for await (const chunk of await app.store.read(PROBE_KEY, signal)) read.push(chunk as Buffer);
    if (!Buffer.concat(read).equals(content))
      return { state: 'wrong', detail: `${app.store.url}: reads other bytes than were written` };
    return { state: 'ok', detail: `${app.store.url}: writes, reads and removes` };
  } finally {
    await app.store.remove(PROBE_KEY, signal);
  }
}

async function examineSource(app: App, signal: AbortSignal): Promise<Result> {
  if (app.config.sourceUrl === undefined) return { state: 'skipped', detail: 'SOURCE_URL is not set' };
  const clock = await app.jobs.stages.clock(signal);
  const seen = formatInstant(clock.seen);
  if (clock.from === 'guessed')
    return {
      state: 'warning',
      detail: 'answers, but does not tell its block time: ranges are closed an hour late',
    };
  return { state: 'ok', detail: `answers; its last block is of ${seen}` };
}
