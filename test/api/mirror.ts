/** A read API over a real database, for the tests of `test/api`. */
import type { FastifyInstance } from 'fastify';
import { openWarehouse, type Warehouse } from '../../src/postgres/database.ts';
import { migrate } from '../../src/postgres/migrate.ts';
import { openRows } from '../../src/postgres/rows.ts';
import { type ListStore, ReadStore } from '../../src/api/service/store/read-store.ts';
import { type ApiDeps, type ApiOptions, buildServer } from '../../src/api/http/server.ts';
import type { SessionStore } from '../../src/api/access/keys.ts';
import { listen } from '../../src/api/http/listen.ts';
import { createLog } from '../../src/core/log.ts';
import { MetricsRegistry } from '../../src/worker/metrics.ts';
import type { ConsoleParts, Upkeep } from '../../src/api/console/console-data.ts';
import { openStatusSource } from '../../src/app/base.ts';
import { readConfig } from '../../src/config/environment.ts';
import type { LakeQueries } from '../../src/api/console/lake-queries.ts';
import type { MirrorFacts, StatusStore } from '../../src/api/http/ports.ts';
import { freshDatabase } from '../support/database.ts';

/** A migrated warehouse of its own; dropped after the test file. */
export async function freshWarehouse(): Promise<Warehouse> {
  const database = await freshDatabase();
  const warehouse = openWarehouse({ url: database.url, onIdleError: () => undefined });
  await migrate(warehouse.db);
  return warehouse;
}

export interface TestApi extends AsyncDisposable {
  readonly url: string;
}

/** Answers from `warehouse` on a free loopback port. Parts that a test does not use refuse to be used. */
export async function startApi(
  warehouse: Warehouse,
  parts: Partial<ApiDeps & ApiOptions> = {},
): Promise<TestApi> {
  const config = readConfig({ env: {}, cwd: '/' });
  const stores = {
    lists: new ReadStore(openRows(warehouse.pool)),
    status: openStatusSource(warehouse, config),
  };
  const server = await apiWithoutDatabase({ ...stores, ...parts });
  return listen(server, { host: '127.0.0.1', port: 0, token: parts.token });
}

/** Not listening; its mirror is empty and has never run. */
export async function apiWithoutDatabase(parts: Partial<ApiDeps & ApiOptions>): Promise<FastifyInstance> {
  const { token, readToken, hosts, version = '0.0.0-test', nowMs, consoleEveryMs, timeouts, ...deps } = parts;
  return buildServer(
    {
      lists: EMPTY_LISTS,
      status: EMPTY_STATUS,
      ledger: { read: unused },
      jobs: NO_JOBS,
      runs: { start: unused, cancel: unused, progress: unused },
      console: NO_CONSOLE,
      probes: [],
      metrics: new MetricsRegistry(),
      sessions: sessionsInMemory(),
      log: createLog('silent'),
      ...deps,
    },
    { token, readToken, hosts, version, nowMs, consoleEveryMs, timeouts },
  );
}

const EMPTY_LISTS: ListStore = {
  state: async () => ({ epoch: 1, headHeight: '0', headNanos: '0', isComplete: false, hasNetwork: false }),
  slice: async () => [],
  party: async () => undefined,
  cursorSecret: async () => Buffer.alloc(32, 1),
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
  ledger: { segments: '0', bytes: '0', parties: '0', notLoaded: '0', quarantined: '0' },
  coverage: {
    listed: 0,
    configured: null,
    wanted: 0,
    covered: 0,
    neverAsked: 0,
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
  work: { workers: 0, nextSlot: null, missedSlot: null },
  openRuns: '0',
  openNightlyRun: null,
  lastVerify: null,
  lakeCommitsDecidedBy: 'store',
};

export const EMPTY_STATUS: StatusStore = {
  logs: async () => ({ lines: [], next: undefined }),
  facts: async () => EMPTY_FACTS,
  runs: async () => [],
  run: async () => undefined,
};

/** As those of one mirror; `secret` makes those of another. */
export function sessionsInMemory(secret = 1): SessionStore {
  const ended = new Set<string>();
  return {
    secret: async () => Buffer.alloc(32, secret),
    end: async (id) => void ended.add(id),
    isEnded: async (id) => ended.has(id),
  };
}

function unused(): never {
  throw new Error('this test has no such part');
}

/** A mirror without a lake. */
export const NO_LAKE: LakeQueries = { tables: async () => [], questions: [], ask: unused, file: unused };

/** Nothing waits, and nothing is known of the disk. */
export const CALM: Upkeep = {
  jobsWaiting: 0,
  oldestSeconds: 0,
  nextAudit: null,
  diskFreeBytes: null,
  diskBytes: null,
};

export const NO_CONSOLE: ConsoleParts = {
  lake: NO_LAKE,
  store: {
    live: unused,
    lines: unused,
    history: unused,
    quarantined: unused,
    costs: unused,
  },
  ledgers: { parties: unused, party: unused, flows: unused, balance: unused, entries: unused },
  settings: [],
  nextNightlyRun: () => null,
  progress: async () => [],
  exportProgress: async () => [],
  preview: unused,
  upkeep: async () => CALM,
};

const NO_JOBS: ApiDeps['jobs'] = { submit: unused, list: unused, ledgerOf: unused };
