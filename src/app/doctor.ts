/**
 * Checks everything that the configuration points to, and reports what is wrong and how
 * to fix it.
 */
import { once } from 'node:events';
import { statfs } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { version } from '../version.ts';
import { errorLine } from '../errors/errors.ts';
import { makeFolders } from '../files/folders.ts';
import { formatBytes, formatPlural } from '../format/format.js';
import { formatInstant, type Micros } from '../time/time.ts';
import { describeNextTimes } from '../time/scheduled-times.ts';
import type { Config } from '../config/environment.ts';
import { isWrittenOnce } from '../storage/object-store.ts';
import { compareClocks, msAhead, readStoreClock } from './clocks.ts';
import { describeStore } from './describe-store.ts';
import { readRow } from '../postgres/run-statement.ts';
import { POSTGRES_MAJOR_MIN } from '../postgres/requirements.ts';
import { findLostSettings } from '../postgres/session-settings.ts';
import { statement } from '../postgres/statement.ts';
import { requireSigner, storedFiles } from '../proof/log.ts';
import { readCheckpointNote } from '../proof/proof-files.ts';
import { examineKeyFile } from '../proof/proof-key.ts';
import { encodeVerifierKey } from '../proof/signed-note.ts';
import { ProofStore } from '../proof/store/proof-store.ts';
import type { SourceClock } from '../exports/planning/source-clock.ts';
import { LIST_RETRIES } from '../source/requester.ts';
import { openApp, type App, type AppOptions } from './app.ts';
import { describeWrongParties } from './configured-parties.ts';
import { openProofKey, proofKeyFile } from './night-proof.ts';
import { passwordFileOf, requireWritable } from './data-dir.ts';
import { receiverChecksOf } from './receiver-checks.ts';
import { readScheduled } from './nights.ts';

export interface Finding {
  readonly what: string;
  readonly state: 'ok' | 'warning' | 'wrong' | 'skipped';
  readonly detail: string;
}

/**
 * Free space needed in addition to the spool, for logs, scratch files and an embedded
 * database.
 */
const FREE_BYTES_MIN = 2n * 2n ** 30n;
/**
 * How many segments one export spools: the current one, and the previous one while it is
 * being uploaded.
 */
const SPOOLED_SEGMENTS = 2n;

/**
 * How long to wait for a service. An operator who runs `doctor` does not want to wait out
 * an outage.
 */
const REACHABLE_MAX_MS = 3_000;
const SOURCE_LIMITS = {
  listRetries: { ...LIST_RETRIES, unreachableMaxMs: REACHABLE_MAX_MS },
};
/**
 * Time limit for all checks together. Services that are up have responded by then; a
 * check that is still waiting reports what it is waiting for.
 */
const CHECKS_MAX_MS = 8_000;

/** Runs each check separately, so that one failure does not hide the other results. */
export async function runChecks(
  options: AppOptions,
): Promise<readonly Finding[]> {
  const findings = [
    {
      what: 'version',
      ...pass(`ledger-mirror ${version()}, Node ${process.versions.node}`),
    },
    await check(
      'data directory',
      () => examineDataDir(options.config),
      options.signal,
    ),
  ];
  let opened: App;
  try {
    opened = await openApp({
      ...options,
      reachableMaxMs: REACHABLE_MAX_MS,
      sourceLimits: SOURCE_LIMITS,
    });
  } catch (error) {
    return [
      ...findings,
      { what: 'database and queues', ...fail(errorLine(error)) },
    ];
  }
  await using app = opened;
  const limit = AbortSignal.any([
    options.signal,
    AbortSignal.timeout(CHECKS_MAX_MS),
  ]);
  // Run the checks in parallel, so that one that waits for an unreachable service does
  // not delay the others.
  const receivers = Object.entries(
    receiverChecksOf(options.config, options.log),
  ).map(([what, attempt]): [string, () => Promise<Result>] => [
    what,
    async () => {
      const { isRight, detail } = await attempt(limit);
      return isRight ? pass(detail) : fail(detail);
    },
  ]);
  const works = [...Object.entries(checksOf(app, limit)), ...receivers];
  const checks = works.map(([what, work]) => check(what, work, limit));
  return [...findings, ...(await Promise.all(checks))];
}

const FACTS = statement({
  server: 'text',
  size: 'text',
  role: 'text',
  mayLoad: 'boolean',
  hasReader: 'boolean',
  micros: 'bigint',
})`
  select current_setting('server_version') as server, pg_size_pretty(pg_database_size(current_database())) as size,
    current_user as role, has_schema_privilege('mirror', 'CREATE') and
      (select pg_has_role(relowner, 'USAGE') from pg_class where oid = 'mirror.ledger_entries'::regclass) as "mayLoad",
    exists (select from pg_roles where rolname = 'mirror_reader') as "hasReader",
    (extract(epoch from clock_timestamp()) * 1000000)::bigint as micros`;

function checksOf(
  app: App,
  limit: AbortSignal,
): Readonly<Record<string, () => Promise<Result>>> {
  const { config, queues, store } = app;
  // Read these once, because several checks use them.
  const asked = readRow(app.warehouse.db, 'look at the database', FACTS);
  const clock =
    config.sourceUrl === undefined
      ? undefined
      : app.jobs.stages.clock({ signal: limit });
  return {
    database: async () => {
      const { server, size } = await asked;
      const detail = `${databasePlace(app)}, Postgres ${server}, ${size} large`;
      if (Number.parseInt(server, 10) < POSTGRES_MAJOR_MIN)
        return fail(`${detail}: ${POSTGRES_MAJOR_MIN} or later is needed`);
      const advice =
        'for trials and single hosts: it gets security fixes later than a ' +
        "system's Postgres";
      return pass(
        config.databaseUrl === undefined ? `${detail}; ${advice}` : detail,
      );
    },
    // A pooler between this process and the server may drop the session's settings, and
    // the server's defaults would then apply.
    session: async () => {
      const lost = await findLostSettings(app.warehouse.db);
      if (lost.length > 0)
        return fail(
          `what was set does not hold (${lost.join(', ')}); a pooler in ` +
            'front of the database must be in session mode',
        );
      return pass('its settings are those that were set after connecting');
    },
    // A load creates and attaches partitions and grants access to views. This checks the
    // necessary permissions beforehand.
    rights: async () => {
      const { role, mayLoad, hasReader } = await asked;
      if (!mayLoad)
        return fail(
          `${role} may not make partitions; let the owner of schema mirror run: ` +
            `alter table mirror.ledger_entries owner to "${role}"; grant create on ` +
            `schema mirror to "${role}"`,
        );
      if (hasReader)
        return pass(
          `${role} may migrate and load; mirror_reader is there for analysts`,
        );
      return warn(
        `${role} may migrate and load, but may not create roles: have an ` +
          'administrator create mirror_reader, and grant it usage on schema mirror ' +
          'and select on its views',
      );
    },
    queues: async () => {
      await queues.probe();
      await queues.counts('sync');
      const advice = await queues.advice();
      if (advice.length > 0) return warn(advice.join('; '));
      return pass(
        config.redisUrl === undefined
          ? 'in Postgres (no REDIS_URL)'
          : 'in Redis',
      );
    },
    // Actually writes, reads and removes an object, because permissions differ by
    // operation.
    'object store': async () => {
      if (store.url.startsWith('file:')) {
        const advice = 'point OBJECT_STORE_URL at a larger disk';
        const space = await examineSpace(
          fileURLToPath(store.url),
          FREE_BYTES_MIN,
          advice,
        );
        if (space.state !== 'ok') return space;
      }
      const found = await store.probe(limit, REACHABLE_MAX_MS);
      const isWhole = isWrittenOnce(found) && found.weaknesses === undefined;
      return (isWhole ? pass : warn)(describeStore(store.url, found));
    },
    proof: () => examineProof(app, limit),
    source: async () => {
      const told = await clock;
      if (told === undefined)
        return { state: 'skipped', detail: 'SOURCE_URL is not set' };
      if (told.from === 'source')
        return pass(
          `answers; its last block is of ${formatInstant(told.seen)}`,
        );
      return warn(
        'answers, but does not tell its block time: ranges are closed up to the ' +
          'newest entry that it shows',
      );
    },
    parties: () => examineParties(app, limit),
    schedule: () => examineSchedule(app),
    clock: () => examineClocks(app, { asked, clock, limit }),
  };
}

/**
 * Examines the key that signs the nights: whether it signed the log in the store, and who
 * may read the key file. A group may read the file, because Kubernetes mounts secrets for
 * a group, and backups often run with a group's permissions.
 */
async function examineProof(
  { config, store, warehouse }: App,
  limit: AbortSignal,
): Promise<Result> {
  const log = await new ProofStore(warehouse).readLog();
  const path = proofKeyFile(config);
  const file = path === undefined ? undefined : await examineKeyFile(path);
  const isKeyMade = config.proofKey !== undefined || file !== undefined;
  if (log === undefined && !isKeyMade)
    return pass('the first nightly run creates the key that signs the nights');
  const key = await openProofKey(config, warehouse);
  const note = await readCheckpointNote(storedFiles(store, limit));
  if (note !== undefined) requireSigner(note, key, store.url);

  const publicKey = encodeVerifierKey(key);
  const nights =
    log === undefined ? 'no night' : formatPlural(log.size, 'night');
  const detail = `${nights} signed; the public key is ${publicKey}`;
  if (file === undefined) return pass(detail);
  if (file.key === undefined || encodeVerifierKey(file.key) !== publicKey)
    return warn(
      `${detail}; ${path} has another key or none, the database has this one: move that ` +
        'file away, and the next nightly run writes it anew',
    );
  if (file.exposure !== undefined)
    return warn(
      `${detail}; every user of this machine may ${file.exposure} ${path} (mode ` +
        `${file.mode}): run chmod 600 on it; in Kubernetes, set defaultMode: 0440`,
    );
  return pass(detail);
}

interface ClockQuestions {
  /** The row read from the database, with the database's time. */
  readonly asked: Promise<{ readonly micros: Micros }>;
  /** The source's clock; undefined if no source is set. */
  readonly clock: Promise<SourceClock> | undefined;
  readonly limit: AbortSignal;
}

/**
 * Compares the clocks of the database, the source (by the Date header of its response)
 * and the object store. A service that does not respond is reported by another check.
 */
async function examineClocks(
  { store }: App,
  { asked, clock, limit }: ClockQuestions,
): Promise<Result> {
  const database = async () => ({
    whose: "the database's",
    aheadMs: msAhead((await asked).micros),
  });
  const source = async () => {
    const told = await clock?.catch(() => undefined);
    const answeredAt = told?.answeredAt;
    return {
      head: told?.from === 'source' ? msAhead(told.seen) : undefined,
      clock:
        answeredAt === undefined
          ? undefined
          : { whose: "the source's", aheadMs: msAhead(answeredAt) },
    };
  };
  const [ofDatabase, ofSource, ofStore] = await Promise.all([
    database(),
    source(),
    readStoreClock(store, limit).catch(() => undefined),
  ]);
  const others = [ofDatabase, ofSource.clock, ofStore];
  const found = compareClocks(
    others.filter((other) => other !== undefined),
    ofSource.head,
  );
  return (found.isRight ? pass : warn)(found.detail);
}

/** Examines the parties in NIGHTLY_PARTIES: does the source list them? */
async function examineParties(app: App, limit: AbortSignal): Promise<Result> {
  const { nightlyParties, source } = app.jobs;
  if (nightlyParties.kind !== 'list')
    return pass('nightly runs export every listed party');
  if (source === undefined)
    return { state: 'skipped', detail: 'SOURCE_URL is not set' };
  let wrong: string | undefined;
  try {
    wrong = await describeWrongParties(app, limit);
  } catch (error) {
    limit.throwIfAborted();
    // The check of the source reports why the source does not answer.
    return { state: 'skipped', detail: `not looked up: ${errorLine(error)}` };
  }
  if (wrong !== undefined) return warn(wrong);
  const { length } = nightlyParties.ids;
  return pass(
    `nightly runs export ${formatPlural(length, 'party', 'parties')}`,
  );
}

async function examineSchedule(app: App): Promise<Result> {
  const { warehouse, config, schedules } = app;
  const { inForce, others, nowMs, missedMs } = await readScheduled(
    warehouse.db,
    config,
  );
  const { nightly } = inForce ?? schedules;
  const next = `nightly runs: ${describeNextTimes(nightly, nowMs)}`;
  const problems: string[] = [];
  if (missedMs !== undefined)
    problems.push(
      `the one of ${new Date(missedMs).toISOString()} was missed: ` +
        (inForce === null
          ? 'no worker is running, and a worker that starts will make it up'
          : 'a worker will start it within a minute'),
    );
  const are = others.length === 1 ? 'schedule is' : 'schedules are';
  if (others.length > 0)
    problems.push(
      `these are of the worker that started last; ${others.length} other ${are} ` +
        'set at other workers: give all of them the same SCHEDULE, SCHEDULE_TZ ' +
        'and AUDIT_SCHEDULE',
    );
  return problems.length === 0
    ? pass(next)
    : warn([next, ...problems].join('; '));
}

type Result = Omit<Finding, 'what'>;

const say =
  (state: Finding['state']) =>
  (detail: string): Result => ({ state, detail });
const pass = say('ok');
const warn = say('warning');
const fail = say('wrong');

async function check(
  what: string,
  work: () => Promise<Result>,
  limit: AbortSignal,
): Promise<Finding> {
  const over = once(limit, 'abort').then((): never => {
    throw limit.reason as Error;
  });
  try {
    return { what, ...(await Promise.race([work(), over])) };
  } catch (error) {
    const isLate =
      limit.reason instanceof DOMException &&
      limit.reason.name === 'TimeoutError';
    const late = isLate
      ? `Cannot be reached within ${CHECKS_MAX_MS / 1_000} s: `
      : '';
    return { what, ...fail(`${late}${errorLine(error)}`) };
  }
}

async function examineDataDir(config: Config): Promise<Result> {
  const { dataDir, exportSegmentMax, sourceExportConcurrency } = config;
  const spoolBytes =
    SPOOLED_SEGMENTS *
    BigInt(exportSegmentMax) *
    BigInt(sourceExportConcurrency + 1);
  await requireWritable(dataDir);
  return examineSpace(
    dataDir,
    FREE_BYTES_MIN + spoolBytes,
    'point DATA_DIR at a larger disk',
  );
}

async function examineSpace(
  dir: string,
  bytesMin: bigint,
  advice: string,
): Promise<Result> {
  await makeFolders(dir);
  const { bavail, bsize } = await statfs(dir, { bigint: true });
  const freeBytes = bavail * bsize;
  const detail = `${dir}, ${formatBytes(freeBytes)} free`;
  if (freeBytes >= bytesMin) return pass(detail);
  return warn(
    `${detail}: less than the ${formatBytes(bytesMin)} that may be needed; ${advice}`,
  );
}

function databasePlace({ config, databaseUrl }: App): string {
  if (config.databaseUrl !== undefined) return config.databaseUrl.place;
  const { host, username, pathname } = new URL(databaseUrl);
  return (
    `embedded, at ${host} while a command runs (database ${pathname.slice(1)}, user ` +
    `${username}, password in ${passwordFileOf(config)})`
  );
}
