/** A read API over a real database, for the tests of `test/api`. */
import type { FastifyInstance } from 'fastify';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { migrate } from '../../src/postgres/migrate.ts';
import { openRows, type Rows } from '../../src/postgres/api-rows.ts';
import type { Statement } from '../../src/postgres/statement.ts';
import {
  type ApiOptions,
  buildServer,
  listen,
} from '../../src/api/server/server.ts';
import { createLog } from '../../src/logging/log.ts';
import { MetricsRegistry } from '../../src/observability/metrics.ts';
import { openStatusSource } from '../../src/app/base.ts';
import { readConfig } from '../../src/config/environment.ts';
import type { LakeQueries } from '../../src/api/console/lake-queries.ts';
import type { ConsoleParts, Upkeep } from '../../src/api/console/ports.ts';
import type { StatusStore } from '../../src/api/mirror/ports.ts';
import type { ApiDeps } from '../../src/api/server/ports.ts';
import type { MirrorFacts } from '../../src/status/mirror-facts.ts';
import type { JobDeps } from '../../src/runs/job.ts';
import { freshDatabase } from '../support/database.ts';

/** A migrated warehouse of its own; dropped after the test file. */
export async function freshWarehouse(): Promise<Warehouse> {
  const database = await freshDatabase();
  const warehouse = openWarehouse({
    url: database.url,
    onIdleError: () => undefined,
  });
  await migrate(warehouse.db);
  return warehouse;
}

export interface TestApi extends AsyncDisposable {
  readonly url: string;
}

/**
 * Answers from `warehouse` on a free loopback port. Parts that a test does not use refuse
 * to be used.
 */
export async function startApi(
  warehouse: Warehouse,
  parts: Parameters<typeof apiWithoutDatabase>[0] = {},
): Promise<TestApi> {
  const config = readConfig({ env: {}, cwd: '/' });
  const stores = {
    rows: openRows(warehouse.pool),
    status: openStatusSource(warehouse, config),
  };
  const server = await apiWithoutDatabase({ ...stores, ...parts });
  return listen(server, { host: '127.0.0.1', port: 0, token: parts.token });
}

/** Rows by the action of their statement; it is handed the values. */
export type Answers = Readonly<
  Record<
    string,
    (values: never) => readonly object[] | Promise<readonly object[]>
  >
>;

/** A database that answers these statements so, and every other with no rows. */
export function answering(answers: Answers): Rows {
  return async (
    action: string,
    query: string | Statement<object>,
    values: readonly unknown[] = [],
  ) => {
    const given =
      typeof query === 'string' ? values : query.compile().parameters;
    const found = (await answers[action]?.(given as never)) ?? [];
    return [...found] as never;
  };
}

/** An export of a party that a client has ordered and that is done. */
export function doneExport(runId: string, partyId: string): object {
  const now = new Date().toISOString();
  return {
    runId,
    kind: 'export',
    subject: partyId,
    params: {},
    state: 'done',
    verdict: 'complete',
    evidence: {},
    queuedAt: now,
    finishedAt: now,
  };
}

/** What the read API does with jobs, as far as a test says. */
export function jobsOf(
  parts: {
    readonly [Part in keyof JobDeps]?: Partial<JobDeps[Part]> | undefined;
  } = {},
): JobDeps {
  return { progress: { read: async () => [] }, ...parts } as JobDeps;
}

interface TestSettings {
  readonly token?: string | undefined;
  readonly readToken?: string | undefined;
  readonly hosts?: readonly string[] | undefined;
  readonly basePath?: string;
  readonly origins?: readonly string[] | undefined;
  readonly answers?: Answers;
}

/** Not listening; its mirror is empty and has never run. */
export async function apiWithoutDatabase(
  parts: Partial<ApiDeps> & TestSettings & Pick<ApiOptions, 'timeouts'>,
): Promise<FastifyInstance> {
  const {
    token,
    readToken,
    hosts,
    basePath,
    origins,
    timeouts,
    answers,
    ...deps
  } = parts;
  const access = {
    apiToken: token,
    apiReadToken: readToken,
    apiHosts: hosts,
    apiHost: '127.0.0.1',
    apiBasePath: basePath,
    apiOrigins: origins,
  };
  return buildServer(
    {
      rows: answering({ ...EMPTY, ...sessionsInMemory(), ...answers }),
      status: EMPTY_STATUS,
      jobs: jobsOf(),
      isAttended: unused,
      console: NO_CONSOLE,
      probes: [],
      metrics: new MetricsRegistry(),
      log: createLog('silent'),
      ...deps,
    },
    { ...access, timeouts },
  );
}

const EMPTY: Answers = {
  // A page is one row with the values of each column, which are null without parties.
  'read a page of parties': () => [
    { ids: null, positions: null, extras: null },
  ],
  'read how a list stands': () => [
    {
      epoch: 1,
      headHeight: '0',
      headNanos: '0',
      provenTo: null,
      isComplete: true,
      hasNetwork: false,
    },
  ],
  "read the cursors' secret": () => [{ secret: Buffer.alloc(32, 1) }],
};

export const EMPTY_FACTS: MirrorFacts = {
  sourceUrl: null,
  epoch: 1,
  streams: (['parties', 'checkpoints', 'ledger'] as const).map((name) => ({
    name,
    verdict: null,
    checkedAt: null,
    asOfBlock: null,
    asOfTime: null,
    rows: '0',
  })),
  ledger: {
    segments: '0',
    bytes: '0',
    parties: '0',
    notLoaded: '0',
    quarantined: '0',
  },
  coverage: {
    listed: 0,
    configured: null,
    wanted: 0,
    covered: 0,
    neverAsked: 0,
    unlisted: 0,
    unlistedParties: [],
    removed: 0,
    removedParties: [],
    comparedSince: null,
    quarantined: 0,
    unreadLists: [],
    knownGaps: 0,
    unconfirmedGaps: 0,
    notLoaded: 0,
    isLoading: false,
    hasFailedVerify: false,
    coveredTo: null,
    openDoubts: 0,
  },
  knownGaps: '0',
  lists: (['parties', 'checkpoints'] as const).map((list) => ({
    list,
    doubts: [],
    gaps: [],
    lastAuditAt: null,
  })),
  work: {
    workers: 0,
    nextSlot: null,
    missedSlot: null,
    schedule: null,
    otherSchedules: [],
  },
  nights: {
    nextAt: null,
    nextAuditAt: null,
    missedAt: null,
    last: null,
    lastCompleteAt: null,
    running: null,
  },
  openRuns: '0',
  awaitedSource: null,
  openNightlyRun: null,
  lastVerify: null,
  proof: null,
  ledgerDoubts: [],
  lakeCommitsDecidedBy: 'store',
};

export const EMPTY_STATUS: StatusStore = {
  logs: async () => ({ lines: [], next: undefined }),
  facts: async () => EMPTY_FACTS,
  runs: async () => [],
  run: async () => undefined,
};

/** As those of one mirror; `secret` makes those of another. */
export function sessionsInMemory(secret = 1): Answers {
  const ended = new Set<string>();
  return {
    "read the mirror's secret": () => [{ secret: Buffer.alloc(32, secret) }],
    'end a session': ([id]: [string]) => {
      ended.add(id);
      return [];
    },
    'look up a session': ([id]: [string]) => (ended.has(id) ? [{}] : []),
  };
}

function unused(): never {
  throw new Error('this test has no such part');
}

/** A mirror without a lake. */
export const NO_LAKE: LakeQueries = {
  tables: async () => [],
  questions: [],
  ask: unused,
  file: unused,
};

/** Nothing waits, and nothing is known of the disk. */
export const CALM: Upkeep = {
  jobsWaiting: 0,
  oldestSeconds: 0,
  diskFreeBytes: null,
  diskBytes: null,
};

export const NO_CONSOLE: ConsoleParts = {
  lake: NO_LAKE,
  settings: [],
  assets: [],
  preview: unused,
  look: unused,
  testNotices: async () => [],
  upkeep: async () => CALM,
};
