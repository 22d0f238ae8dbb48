/**
 * Opens the database and the resume state, which every process needs, and reads the
 * status of the mirror and its work. Read-only commands use this module alone, so they
 * start without the code that runs queues, reads the source, collects metrics or builds
 * the lake.
 */
import { join } from 'node:path';
import pRetry from 'p-retry';
import { type Config, knownAssets } from '../config/environment.ts';
import { secretsOfUrl } from '../config/secrets.ts';
import {
  errorCode,
  errorLine,
  PermanentError,
  UnreachableError,
} from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import { rememberSecrets } from '../secrets/secret-masking.ts';
import { isLakeDecidedHere } from '../lake/store/lake-store.ts';
import { readSituation } from '../lists/store/list-state.ts';
import { storeUrl } from '../storage/store-url.ts';
import {
  type Database,
  openWarehouse,
  type Warehouse,
} from '../postgres/database.ts';
import {
  queuePrefix,
  readIdentity,
  settleQueues,
  shownUrl,
} from '../postgres/identity.ts';
import type { PostgresLogin } from '../network/postgres/postgres-client.ts';
import type { RedisLogin } from '../network/redis-login.ts';
import type { RotatingSecret } from '../network/rotating-secret.ts';
import { migrate } from '../postgres/migrate.ts';
import { keepAssets } from '../warehouse/store/asset-units.ts';
import { requireSessions } from '../postgres/pooler.ts';
import { QUEUE_CONNECTIONS } from '../queue/backend.ts';
import type { Schedules } from '../time/scheduled-times.ts';
import { ProgressHints } from '../runs/progress.ts';
import { RunStore } from '../runs/store/run-store.ts';
import { openRunReader, type RunReader } from '../runs/store/run-reader.ts';
import type {
  FactsReader,
  ListFacts,
  ListName,
  WorkFacts,
} from '../status/mirror-facts.ts';
import { describeNights, type NightFacts } from '../status/night-facts.ts';
import { readStoredFacts } from '../status/store/status-store.ts';
import { openPostgresState } from '../state/postgres-state.ts';
import { type ResumeState, tolerateOutages } from '../state/resume-state.ts';
import { objectsAt } from './data-dir.ts';
import { readScheduled, type ScheduleReading } from './nights.ts';
import { openDatabaseLogin, openRedisLogin } from './rotating-secrets.ts';

/** How long a command waits for its services by default. */
const REACHABLE_MAX_MS = 60_000;
const RETRY_MIN_MS = 250;
const RETRY_MAX_MS = 5_000;

export interface BaseOptions {
  readonly config: Config;
  readonly log: Log;
  readonly signal: AbortSignal;
  /** How long a service may be unreachable, in milliseconds; a minute by default. */
  readonly reachableMaxMs?: number;
}

export interface Base {
  readonly databaseUrl: string;
  readonly warehouse: Warehouse;
  /**
   * The database login, also used by queues in Postgres; undefined for the embedded
   * database.
   */
  readonly login: RotatingSecret<PostgresLogin> | undefined;
  /** The Redis login; undefined without Redis. */
  readonly redisLogin: RotatingSecret<RedisLogin> | undefined;
  /** The prefix of queue names and Redis keys. */
  readonly prefix: string;
  readonly state: ResumeState;
  /** The names of the migrations that were applied just now. */
  readonly migrated: readonly string[];
}

export async function openBase(
  options: BaseOptions,
  stack: AsyncDisposableStack,
): Promise<Base> {
  const { config, log } = options;
  const databaseUrl =
    config.databaseUrl?.href ?? (await startDatabase(options, stack));
  const onIdleError = (error: Error): void =>
    log.warn({ err: error }, 'Database connection lost');
  // Queues in Postgres have their own pool, which counts towards the same limit.
  const elsewhere = config.redisUrl === undefined ? QUEUE_CONNECTIONS : 0;
  const poolMax = config.databaseConnections - elsewhere;
  const login = openDatabaseLogin(config);
  const warehouse = stack.use(
    openWarehouse({ url: databaseUrl, login, poolMax, onIdleError }),
  );
  const migrated = await untilReachable('database', options, () =>
    openSchema(warehouse, config),
  );
  await settleQueues(warehouse.db);
  const identity = await readIdentity(warehouse.db);
  const provenUrl = identity.sourceUrl;
  const url = config.sourceUrl && shownUrl(config.sourceUrl);
  if (provenUrl !== null && url !== undefined && url !== provenUrl) {
    // Workers that are still running with the old address refuse jobs for the new one.
    log.warn(
      { provenUrl, url },
      `This mirror was last read from ${provenUrl}, and SOURCE_URL is ${url}: if ` +
        'workers are running, restart them',
    );
  }
  const prefix = queuePrefix(identity);
  const onError = (error: Error): void =>
    log.debug({ err: error }, 'Redis connection failed');
  const redisLogin = openRedisLogin(config);
  const inner =
    config.redisUrl === undefined
      ? openPostgresState(warehouse.pool, prefix)
      : (await import('../state/redis-state.ts')).openRedisState(
          config.redisUrl.href,
          prefix,
          onError,
          redisLogin,
        );
  stack.defer(() => inner.close());
  return {
    databaseUrl,
    warehouse,
    login,
    redisLogin,
    prefix,
    state: tolerateOutages(inner, log),
    migrated,
  };
}

async function startDatabase(
  { config, log, signal }: BaseOptions,
  stack: AsyncDisposableStack,
) {
  const { startEmbeddedPostgres } = await import('../embedded/postgres.ts');
  const { connectionString } = stack.use(
    await startEmbeddedPostgres({ dataDir: config.dataDir, log, signal }),
  );
  rememberSecrets(secretsOfUrl(new URL(connectionString)));
  return connectionString;
}

/**
 * Connects to the database for the first time. If it is unreachable, the error contains
 * its address, which is what the user must check.
 */
async function openSchema(
  { db, pool }: Warehouse,
  { databaseUrl, dataDir, assetsFile }: Config,
) {
  try {
    // The embedded server has no pooler in front of it.
    if (databaseUrl !== undefined) await requireSessions(pool);
    const migrated = await migrate(db);
    // A process without the file leaves the assets that other processes have written.
    if (assetsFile !== undefined)
      await keepAssets(db, knownAssets({ assetsFile }));
    return migrated;
  } catch (error) {
    if (databaseUrl === undefined && errorCode(error) === 'DATABASE_OLDER') {
      const home = join(dataDir, 'postgres');
      const message =
        `Cannot use the database in ${home}: it was created by an ` +
        'earlier version, before the first release; move this folder ' +
        'away ' +
        'and run `ledger-mirror load --all --take-over`, which rebuilds the database from the ' +
        'objects';
      throw new PermanentError(message, {
        code: 'DATABASE_OLDER',
        meta: { home },
        cause: error,
      });
    }
    if (!(error instanceof UnreachableError) || databaseUrl === undefined)
      throw error;
    const { place: host } = databaseUrl;
    const details = {
      code: 'DATABASE_UNREACHABLE',
      meta: { host },
      cause: error,
    };
    throw new UnreachableError(
      `Cannot reach the database at ${host}: ${reasonOf(error)}; check DATABASE_URL`,
      details,
    );
  }
}

/** Returns the message of the underlying server or network error. */
function reasonOf({ cause, message }: Error): string {
  if (!(cause instanceof Error)) return message;
  return cause.message === '' ? errorCode(cause) : cause.message;
}

/**
 * Calls `open` until it succeeds, or until the service has been unreachable for too
 * long. Only `UnreachableError` is retried.
 * @throws the last UnreachableError once the time is up
 */
export async function untilReachable<Result>(
  what: string,
  {
    log,
    signal,
    reachableMaxMs = REACHABLE_MAX_MS,
  }: Omit<BaseOptions, 'config'>,
  open: () => Promise<Result>,
): Promise<Result> {
  // The time counts from the first failure. If the process was suspended during the first
  // attempt, that pause is not time spent retrying.
  let awaySinceMs: number | undefined;
  return pRetry(open, {
    retries: Math.ceil(reachableMaxMs / RETRY_MIN_MS),
    minTimeout: RETRY_MIN_MS,
    maxTimeout: RETRY_MAX_MS,
    randomize: true,
    signal,
    shouldRetry: ({ error, attemptNumber: attempt, retryDelay: delayMs }) => {
      if (!(error instanceof UnreachableError)) return false;
      log.warn(
        { what, reason: errorLine(error), attempt, delayMs },
        'Not reachable yet',
      );
      awaySinceMs ??= performance.now();
      return performance.now() - awaySinceMs < reachableMaxMs;
    },
  });
}

export interface ReadOnlyBase extends AsyncDisposable {
  readonly status: FactsReader & RunReader;
  readonly runs: RunStore;
  readonly progress: Pick<ProgressHints, 'read'>;
}

/**
 * Opens what a read-only command needs.
 * @throws the same errors as `openApp`
 */
export async function openReadOnlyBase(
  options: BaseOptions,
): Promise<ReadOnlyBase> {
  await using stack = new AsyncDisposableStack();
  const { warehouse, state } = await openBase(options, stack);
  const owned = stack.move();
  return {
    status: openStatusSource(warehouse, options.config),
    runs: new RunStore(warehouse.db),
    progress: new ProgressHints(state),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/**
 * Composes the status of the mirror from several modules' stores.
 * @param config the configuration of this process; its schedule is used while no worker
 *   is running
 */
export function openStatusSource(
  { db }: Pick<Warehouse, 'db'>,
  config: Config,
): FactsReader & RunReader {
  return {
    ...openRunReader(db),
    facts: async () => {
      const [found, scheduled, lists, isDecidedHere] = await Promise.all([
        readStoredFacts(db),
        readScheduled(db, config),
        readLists(db),
        isLakeDecidedHere(db, storeUrl(objectsAt(config))),
      ]);

      const { recordedNights, ...stored } = found;
      const nights = describeNights(scheduled, recordedNights);
      return {
        ...stored,
        nights,
        work: describeWork(scheduled, nights),
        lists,
        lakeCommitsDecidedBy: isDecidedHere ? 'database' : 'store',
      };
    },
  };
}

/**
 * Describes the workers and their schedules, under the field names that the status has
 * always used.
 */
function describeWork(
  { workers, inForce, others }: ScheduleReading,
  { nextAt, missedAt }: NightFacts,
): WorkFacts {
  return {
    workers,
    nextSlot: nextAt,
    missedSlot: missedAt,
    schedule: inForce === null ? null : describeSchedules(inForce),
    otherSchedules: others.map(describeSchedules),
  };
}

async function readLists(db: Database): Promise<ListFacts[]> {
  const read = async (list: ListName): Promise<ListFacts> => {
    const { current, doubts, gaps } = await readSituation(db, list);
    const said = doubts.map(({ code, seen, since }) => ({
      code,
      message: typeof seen['message'] === 'string' ? seen['message'] : code,
      since,
    }));
    return {
      list,
      doubts: said,
      gaps: [...gaps],
      lastAuditAt: current?.auditedAt ?? null,
    };
  };
  return Promise.all([read('parties'), read('checkpoints')]);
}

/** Formats schedules for people: `0 2 * * * (UTC), audits 0 4 * * 0`. */
function describeSchedules({ nightly, audit }: Schedules): string {
  return `${nightly.pattern} (${nightly.tz}), audits ${audit.pattern}`;
}
