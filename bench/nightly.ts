/**
 * Measures the cost of nights by the number of parties, nearly all of them idle: `npm run
 * bench -- nightly [SIZE…]`. For each size it runs a first night, a second one after a
 * quarter of an hour of network time, and one that may request 200 parties. It counts
 * requests, statements, buffers, WAL, Redis commands, CPU and memory, and computes the
 * exponents of their growth. Then it alternates nights with and without the signed
 * statement, to measure what the statement adds.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { Redis } from 'ioredis';
import { openApp, type App } from '../src/app/app.ts';
import { readConfig } from '../src/config/environment.ts';
import { createLog } from '../src/logging/log.ts';
import { enqueueRun } from '../src/runs/enqueue.ts';
import type { BeforeFinish } from '../src/runs/job.ts';
import { publishReport } from '../src/runs/store/publish-report.ts';
import type { Run } from '../src/runs/store/run-store.ts';
import { handleJob } from '../src/worker/job-worker.ts';
import { countStatements } from '../test/support/measure/count-statements.ts';
import { farSchedule } from '../test/support/far-schedule.ts';
import { chooseRedis } from '../test/support/servers/redis-binary.ts';
import { RedisProcess } from '../test/support/servers/redis-process.ts';
import { startSource } from './world/lists-bench.ts';
import { atMost, say, sayGate, sayLoad, sayNumber } from './world/report.ts';
import { givenNumbers, median, openFolder } from './world/scratch-world.ts';

/**
 * `--workers=4`: the number of processes that export; `--latency=20`: milliseconds per
 * answer; `--exports=16`: maximum number of concurrent exports, over all processes.
 */
const { values: flags } = parseArgs({
  options: {
    workers: { type: 'string' },
    latency: { type: 'string' },
    exports: { type: 'string' },
  },
  strict: false,
});
const WORKERS = Number(flags.workers ?? 1);
const LATENCY_MS = Number(flags.latency ?? 0);
const EXPORTS_AT_ONCE = String(flags.exports ?? 4);
const given = givenNumbers();
const SIZES = given.length > 0 ? given : [300, 1_000];
const ACTIVE = 20;
const PASSED_MS = 900_000;
const CAPPED = 200;
const LOOK_MS = 250;
const EXPONENT_MAX = 1.05;
const EXPORTS_A_SECOND_MIN = 150;
/** Maximum number of statements, and of transactions, for each requested party. */
const STATEMENTS_MAX = 4;
const TRANSACTIONS_MAX = 1;
/** The number of nights with a statement, and of nights without one. */
const ROUNDS = process.argv.includes('--quick') ? 3 : 7;
const STATEMENT_SHARE_MAX = 0.02;
const COUNTS = [
  'requests',
  'statements',
  'transactions',
  'buffer hits',
  'WAL bytes',
  'Redis commands',
] as const;

type Measured = Record<(typeof COUNTS)[number], number> & {
  readonly run: Run;
  readonly seconds: number;
  readonly cpuSeconds: number;
};

async function night(
  app: App,
  settings: { exportsMax?: number; publishReport?: BeforeFinish } = {},
): Promise<Run> {
  const { runId } = await app.jobs.runs.create({
    kind: 'nightly',
    subject: 'bench',
  });
  const { publishReport: publish = app.jobs.stages.publishReport } = settings;
  const stages = { ...app.jobs.stages, publishReport: publish };
  const jobs = { ...app.jobs, stages, nightlyExportsMax: settings.exportsMax };
  current = jobs;
  const created = await app.jobs.runs.get(runId);
  if (created === undefined) throw new Error('the run is gone');
  await enqueueRun(created, jobs);
  for (;;) {
    const run = await app.jobs.runs.get(runId);
    if (run?.state === 'done') return run;
    await sleep(LOOK_MS);
  }
}
let current: App['jobs'] | undefined;

async function redisCommands(redis: Redis | undefined): Promise<number> {
  const found = /total_commands_processed:(\d+)/.exec(
    (await redis?.info('stats')) ?? '',
  );
  return Number(found?.[1] ?? 0);
}

async function databaseCounts({
  warehouse,
}: App): Promise<{ hits: number; wal: number }> {
  const { rows } = await warehouse.pool.query<{ hits: string; wal: string }>(
    `select blks_hit::text as hits, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::text as wal
     from pg_stat_database where datname = current_database()`,
  );
  return { hits: Number(rows[0]?.hits), wal: Number(rows[0]?.wal) };
}

async function measured(
  app: App,
  redis: Redis | undefined,
  work: () => Promise<Run>,
): Promise<Measured> {
  const before = await databaseCounts(app);
  const commands = await redisCommands(redis);
  const cpu = process.cpuUsage();
  using counted = countStatements();
  const startedMs = performance.now();
  const run = await work();
  const seconds = (performance.now() - startedMs) / 1_000;
  const { user, system } = process.cpuUsage(cpu);
  // Backends publish their statistics within a second after their last statement.
  await sleep(1_500);
  const after = await databaseCounts(app);
  const { requests } = run.evidence['source'] as {
    requests: { lists: number; exports: number };
  };
  return {
    run,
    seconds,
    cpuSeconds: (user + system) / 1e6,
    requests: requests.lists + requests.exports,
    statements: counted.statements,
    transactions: counted.transactions,
    'buffer hits': after.hits - before.hits,
    'WAL bytes': after.wal - before.wal,
    'Redis commands': (await redisCommands(redis)) - commands,
  };
}

function tell(what: string, parties: number, cost: Measured): void {
  const exports = cost.run.evidence['exports'] as {
    secondsPerExport?: number;
    parties: number;
  };
  const rate = 1 / (exports.secondsPerExport ?? Number.NaN);
  sayGate(
    `${what} of ${parties}: verdict, seconds, CPU of this process`,
    `${cost.run.verdict}, ${cost.seconds.toFixed(1)} s, ${rate.toFixed(0)} exports/s, ${cost.cpuSeconds.toFixed(1)} s`,
    `complete, at least ${EXPORTS_A_SECOND_MIN} exports/s`,
    cost.run.verdict === 'complete' && rate >= EXPORTS_A_SECOND_MIN,
  );
  const each = (name: (typeof COUNTS)[number]): number =>
    cost[name] / Math.max(1, exports.parties);
  sayGate(
    `${what} of ${parties}, for each party asked`,
    COUNTS.map((name) => `${each(name).toFixed(2)} ${name}`).join(', '),
    `at most ${STATEMENTS_MAX} statements, ${TRANSACTIONS_MAX} transaction`,
    each('statements') <= STATEMENTS_MAX &&
      each('transactions') <= TRANSACTIONS_MAX,
  );
}

async function openNight(
  parties: number,
  stack: AsyncDisposableStack,
  redisUrl: string | undefined,
): Promise<{
  app: App;
  advance: () => Promise<void>;
}> {
  const dataDir = await openFolder(stack);
  const sandbox = stack.use(await startSource(ACTIVE, LATENCY_MS));
  const env = {
    SOURCE_URL: sandbox.url.href,
    DATA_DIR: dataDir,
    SOURCE_RATE: '100000',
    SOURCE_EXPORT_CONCURRENCY: EXPORTS_AT_ONCE,
    LOG_LEVEL: 'warn',
    ...(redisUrl === undefined ? {} : { REDIS_URL: redisUrl }),
  };
  const config = readConfig({ env, cwd: dataDir });
  const app = stack.use(
    await openApp({
      config,
      log: createLog('warn'),
      signal: new AbortController().signal,
    }),
  );
  // Parties that have been on the list at some time and have empty ledgers.
  const ids = Array.from({ length: parties - ACTIVE }, (_, index) =>
    createHash('sha256').update(`idle ${index}`).digest('hex'),
  );
  await app.warehouse.pool.query(
    'insert into mirror.parties (party_id, first_epoch) select unnest($1::text[]), 1',
    [ids],
  );
  for (let other = 1; other < WORKERS; other += 1)
    stack.use(
      await startWorker(
        app,
        { ...env, DATA_DIR: join(dataDir, `worker-${other}`) },
        dataDir,
        other,
      ),
    );
  current = app.jobs;
  for (const queue of ['sync', 'export', 'load', 'nightly'] as const)
    app.queues.work(
      queue,
      queue === 'export' ? Number(EXPORTS_AT_ONCE) + 1 : 2,
      (job, signal) => handleJob(job, current ?? app.jobs, signal),
    );
  return { app, advance: () => sandbox.advance(PASSED_MS) };
}

/**
 * Starts another `worker` process, on the same database, queues and objects, and waits
 * until it is registered.
 */
async function startWorker(
  { warehouse }: App,
  env: Record<string, string>,
  dataDir: string,
  others: number,
): Promise<AsyncDisposable> {
  const main = fileURLToPath(new URL('../src/main.ts', import.meta.url));
  const child = spawn(process.execPath, [main, 'worker'], {
    env: {
      ...process.env,
      ...env,
      DATABASE_URL: String(warehouse.pool.options.connectionString),
      OBJECT_STORE_URL: pathToFileURL(join(dataDir, 'objects')).href,
      FIRST_RUN: 'scheduled',
      SCHEDULE: farSchedule(),
    },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const ended = once(child, 'exit');
  for (;;) {
    const { rowCount } = await warehouse.pool.query(
      'select from mirror.workers',
    );
    if ((rowCount ?? 0) >= others) break;
    if (child.exitCode !== null) throw new Error('a worker did not start');
    await sleep(LOOK_MS);
  }
  return {
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

async function nightsOf(
  parties: number,
  redisUrl: string | undefined,
): Promise<readonly Measured[]> {
  await using stack = new AsyncDisposableStack();
  const { app, advance } = await openNight(parties, stack, redisUrl);
  const redis = redisUrl === undefined ? undefined : new Redis(redisUrl);
  stack.defer(() => redis?.disconnect());
  const first = await measured(app, redis, () => night(app));
  tell('first night', parties, first);
  await advance();
  const second = await measured(app, redis, () => night(app));
  tell('second night', parties, second);
  // Any worker may begin the night, but only this process knows the limit.
  if (WORKERS > 1) return [first, second];
  await advance();
  const capped = await measured(app, redis, () =>
    night(app, { exportsMax: CAPPED }),
  );
  const exports = capped.run.evidence['exports'] as {
    secondsPerExport?: number;
    parties: number;
  };
  const asking = (exports.secondsPerExport ?? 0) * exports.parties;
  sayNumber(
    `a night that asks ${CAPPED} of ${parties}: seconds beyond its requests`,
    capped.seconds - asking,
    (capped.seconds - asking).toFixed(1),
    atMost(5, ' s'),
  );
  await measureStatement(parties, app, advance);
  return [first, second];
}

/**
 * How long the end of a night takes, including its report, with or without a statement.
 */
interface Ending {
  readonly nightSeconds: number;
  readonly nightCpuSeconds: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
}

async function endingOf(app: App, hasStatement: boolean): Promise<Ending> {
  let seconds = 0;
  let cpuSeconds = 0;
  const { warehouse, store: objects, jobs } = app;
  const publish: BeforeFinish = (run, ended, signal) =>
    hasStatement
      ? jobs.stages.publishReport(run, ended, signal)
      : publishReport(run, ended, { warehouse, objects, signal });
  const timed: BeforeFinish = async (...asked) => {
    const since = startTimes();
    const ended = await publish(...asked);
    ({ seconds, cpuSeconds } = since());
    return ended;
  };
  const since = startTimes();
  await night(app, { publishReport: timed });
  const whole = since();
  return {
    nightSeconds: whole.seconds,
    nightCpuSeconds: whole.cpuSeconds,
    seconds,
    cpuSeconds,
  };
}

function startTimes(): () => { seconds: number; cpuSeconds: number } {
  const startedMs = performance.now();
  const cpu = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(cpu);
    const seconds = (performance.now() - startedMs) / 1_000;
    return { seconds, cpuSeconds: (user + system) / 1e6 };
  };
}

/**
 * Measures the statement's share of a night's duration. Only the end of the night is
 * compared, because nothing else of the night runs then. In the duration of a whole
 * night, the statement's share would be lost in the noise of other work on the machine.
 */
async function measureStatement(
  parties: number,
  app: App,
  advance: () => Promise<void>,
): Promise<void> {
  const withIt: Ending[] = [];
  const without: Ending[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    await advance();
    withIt.push(await endingOf(app, true));
    await advance();
    without.push(await endingOf(app, false));
  }
  const added = (what: 'seconds' | 'cpuSeconds') =>
    median(withIt.map((one) => one[what])) -
    median(without.map((one) => one[what]));
  const nightSeconds = median(without.map((one) => one.nightSeconds));
  const nightCpu = median(without.map((one) => one.nightCpuSeconds));
  const share = added('seconds') / nightSeconds;
  const cpuShare = added('cpuSeconds') / nightCpu;
  sayGate(
    `the statement in a night of ${parties}: seconds and CPU, and their share`,
    `${added('seconds').toFixed(3)} s of ${nightSeconds.toFixed(1)} s, ${(100 * share).toFixed(1)} %; ` +
      `${added('cpuSeconds').toFixed(3)} s of ${nightCpu.toFixed(1)} s, ${(100 * cpuShare).toFixed(1)} %`,
    'at most 2 %',
    share <= STATEMENT_SHARE_MAX && cpuShare <= STATEMENT_SHARE_MAX,
  );
}

sayLoad('before');
await using servers = new AsyncDisposableStack();
const command = await chooseRedis();
const redis = command.isReal
  ? servers.use(await RedisProcess.start(command))
  : undefined;
if (redis === undefined)
  say('queues', 'in Postgres: no redis-server on this machine');
const results: (readonly Measured[])[] = [];
for (const size of SIZES) results.push(await nightsOf(size, redis?.url));
const small = results[0];
const large = results.at(-1);
const growth = Math.log((SIZES.at(-1) ?? 1) / (SIZES[0] ?? 1));
if (small !== undefined && large !== undefined && growth > 0) {
  for (const [index, name] of ['first nights', 'second nights'].entries()) {
    const exponents = COUNTS.map((count) => {
      const more = (large[index]?.[count] ?? 0) / (small[index]?.[count] ?? 1);
      return { count, exponent: Math.log(more) / growth };
    });
    // Without Redis nothing can grow, so the exponent is not a number.
    sayGate(
      `exponents of ${name}, ${SIZES[0]} to ${SIZES.at(-1)}`,
      exponents
        .map(({ count, exponent }) => `${count} ${exponent.toFixed(2)}`)
        .join(', '),
      `at most ${EXPONENT_MAX}`,
      exponents.every(({ exponent }) => !(exponent > EXPONENT_MAX)),
    );
  }
}
const peakMb = Math.round(process.resourceUsage().maxRSS / 1024);
sayNumber(
  'peak memory of this process',
  peakMb,
  `${peakMb} MB`,
  atMost(350, ' MB'),
);
sayLoad('after');
