/** The database and the resume state: what every process needs, the one that others are described in first. */
import { join } from 'node:path';
import pRetry from 'p-retry';
import { openWarehouse, type Warehouse } from '../postgres/database.ts';
import { type Identity, queuePrefix, readIdentity, shownUrl } from '../postgres/identity.ts';
import { migrate } from '../postgres/migrate.ts';
import type { Config } from '../config/environment.ts';
import { secretsOfUrl } from '../config/secrets.ts';
import { errorCode, errorLine, PermanentError, UnreachableError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { rememberSecrets } from '../core/secrets.ts';
import { PostgresState } from '../state/postgres-state.ts';
import { type ResumeState, tolerateOutages } from '../state/resume-state.ts';

/** For commands that wait for their services. */
const REACHABLE_MAX_MS = 60_000;
const RETRY_MIN_MS = 250;
const RETRY_MAX_MS = 5_000;

export interface BaseOptions {
  readonly config: Config;
  readonly log: Log;
  readonly signal: AbortSignal;
  /** How long a service may stay away. Default: a minute. */
  readonly reachableMaxMs?: number;
}

export interface Base {
  readonly databaseUrl: string;
  readonly warehouse: Warehouse;
  readonly identity: Identity;
  /** Of queues, and of keys in Redis. */
  readonly prefix: string;
  readonly state: ResumeState;
  /** The names of the migrations that were run now. */
  readonly migrated: readonly string[];
}

export async function openBase(options: BaseOptions, stack: AsyncDisposableStack): Promise<Base> {
  const { config, log } = options;
  const databaseUrl = await openDatabase(options, stack);
  const warehouse = stack.use(
    openWarehouse({
      url: databaseUrl,
      onIdleError: (error) => log.warn({ err: error }, 'Database connection lost'),
    }),
  );
  const migrated = await untilReachable('database', options, () => openSchema(warehouse, config));
  const identity = await identify(warehouse, options);
  const prefix = queuePrefix(identity);
  const state = await openState(options, warehouse, prefix, stack);
  return { databaseUrl, warehouse, identity, prefix, state, migrated };
}

async function openDatabase(
  { config, log, signal }: BaseOptions,
  stack: AsyncDisposableStack,
): Promise<string> {
  if (config.databaseUrl !== undefined) return config.databaseUrl.href;
  const { startEmbeddedPostgres } = await import('../embedded/postgres.ts');
  const embedded = stack.use(await startEmbeddedPostgres({ dataDir: config.dataDir, log, signal }));
  rememberSecrets(secretsOfUrl(new URL(embedded.connectionString)));
  return embedded.connectionString;
}

async function identify({ db }: Warehouse, { config, log }: BaseOptions): Promise<Identity> {
  const identity = await readIdentity(db);
  const [provenUrl, url] = [identity.sourceUrl, config.sourceUrl && shownUrl(config.sourceUrl)];
  if (provenUrl !== null && url !== undefined && url !== provenUrl) {
    // Workers that were started with the former address refuse the jobs of this one.
    log.warn(
      { provenUrl, url },
      'SOURCE_URL is not the address that the mirror was read from: start running workers again with it',
    );
  }
  return identity;
}

/** The first that is asked of the database: where it is away, its address is what a person must look at. */
async function openSchema(
  warehouse: Warehouse,
  { databaseUrl, dataDir }: Config,
): Promise<readonly string[]> {
  try {
    return await migrate(warehouse.db);
  } catch (error) {
    if (databaseUrl === undefined && errorCode(error) === 'DATABASE_OLDER')
      throw embeddedIsOlder(dataDir, error);
    if (!(error instanceof UnreachableError) || databaseUrl === undefined) throw error;
    throw new UnreachableError(`Cannot reach the database at ${databaseUrl.host}; check DATABASE_URL`, {
      code: 'DATABASE_UNREACHABLE',
      meta: { host: databaseUrl.host },
      cause: error,
    });
  }
}

function embeddedIsOlder(dataDir: string, cause: unknown): PermanentError {
  const home = join(dataDir, 'postgres');
  return new PermanentError(
    `Cannot use the database in ${home}: an earlier version made it, before the first release; move this folder away ` +
      'and run `ledger-mirror load --all`, which rebuilds the database from the objects',
    { code: 'DATABASE_OLDER', meta: { home }, cause },
  );
}

async function openState(
  { config, log }: BaseOptions,
  warehouse: Warehouse,
  prefix: string,
  stack: AsyncDisposableStack,
): Promise<ResumeState> {
  const onError = (error: Error): void => log.debug({ err: error }, 'Redis connection failed');
  const inner =
    config.redisUrl === undefined
      ? new PostgresState(warehouse.pool, prefix)
      : new (await import('../state/redis-state.ts')).RedisState(config.redisUrl.href, prefix, onError);
  stack.defer(() => inner.close());
  return tolerateOutages(inner, log);
}

/**
 * Calls `open` until it succeeds, as long as a service may stay away; only errors that say "not reachable" are retried.
 * @throws UnreachableError the last one, once that is over
 */
export async function untilReachable<Result>(
  what: string,
  { log, signal, reachableMaxMs = REACHABLE_MAX_MS }: Omit<BaseOptions, 'config'>,
  open: () => Promise<Result>,
): Promise<Result> {
  // Since the first failure: a process that stood still during an attempt has not tried for so long.
  let awaySinceMs: number | undefined;
  return pRetry(open, {
    retries: Math.ceil(reachableMaxMs / RETRY_MIN_MS),
    minTimeout: RETRY_MIN_MS,
    maxTimeout: RETRY_MAX_MS,
    randomize: true,
    signal,
    shouldRetry: ({ error }) => {
      awaySinceMs ??= performance.now();
      return error instanceof UnreachableError && performance.now() - awaySinceMs < reachableMaxMs;
    },
    onFailedAttempt: ({ error, attemptNumber, retryDelay }) => {
      if (!(error instanceof UnreachableError)) return;
      const reason = errorLine(error);
      log.warn({ what, reason, attempt: attemptNumber, delayMs: retryDelay }, 'Not reachable yet');
    },
  });
}
