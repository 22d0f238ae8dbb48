/** The directions of imports, checked on the real graph: the tree tells the story only while these hold. */
import { existsSync, globSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  findCycles,
  readImportGraph,
  type Import,
  type Module,
} from './support/import-graph.ts';

const ROOT = resolve(import.meta.dirname, '..');
const FOLDERS = ['src', 'jobs', 'migrations', 'scripts', 'bench', 'test'];

const STAGES = ['src/lists', 'src/exports', 'src/warehouse', 'src/lake'];
const ADAPTERS = [
  'src/source',
  'src/postgres',
  'src/storage',
  'src/state',
  'src/queue',
];
/** One topic each; they import no more than each other, and no package but what their topic is. */
const FOUNDATION = [
  'src/errors',
  'src/time',
  'src/json',
  'src/concurrency',
  'src/secrets',
  'src/logging',
  'src/files',
  'src/format',
  'src/version.ts',
];
const PURE = [...FOUNDATION, 'src/ledger'];
/** Beside the product, which imports none of it. */
const UNSHIPPED = ['test', 'bench', 'scripts'];
const EDGES = ['jobs', 'src/api', 'src/cli', 'src/runs', 'src/worker'];
/** Builds everything and may import everything; only the command line stands above it. */
const COMPOSITION = 'src/app';

/** Written from the interface document alone; only Node's own modules, and the test runner in their tests. */
const INDEPENDENT = ['test/lists/plain-source', 'test/exports/hostile'];

function isIndependent(target: string): boolean {
  return (
    isBelow(target, INDEPENDENT) ||
    target.startsWith('node:') ||
    target === 'vitest'
  );
}

interface Rule {
  /** Our own folders whose values it may import, besides its own. */
  readonly values: readonly string[];
  /** Folders it may import types from, besides those. */
  readonly types?: readonly string[];
  /** Single files beside the folders of `types`. */
  readonly typeFiles?: RegExp;
  readonly packages?: readonly string[];
}

/** What a stage needs is a port; what an adapter implements is the port of a stage. */
const PORTS =
  /^src\/(?:[a-z-/]+\/(?:[a-z]+-)?ports|storage\/object-store|state\/resume-state)\.ts$/;
const stage = (...packages: string[]): Rule => ({
  values: [...PURE, 'src/catalog'],
  typeFiles: PORTS,
  packages,
});
const adapter = (...packages: string[]): Rule => ({
  values: PURE,
  types: ['src/config'],
  typeFiles: PORTS,
  packages: [...packages, 'zod'],
});
const edge = (...packages: string[]): Rule => ({
  values: [
    ...PURE,
    ...STAGES,
    'src/config',
    'src/queue',
    'src/runs',
    'src/worker',
    'src/status',
    'src/observability',
    'jobs',
  ],
  types: ADAPTERS,
  typeFiles: PORTS,
  packages: [...packages, 'zod'],
});
/** Sends requests out of the process, by the rules that hold for every client. */
const reaching = (rule: Rule): Rule => ({
  ...rule,
  values: [...(rule.values ?? []), 'src/network'],
});
/** A store reads and writes the tables of the room that it lies in. */
const store = (room: string, ...below: string[]): Rule => ({
  values: [...PURE, 'src/postgres', 'src/catalog', ...below, room],
  typeFiles: PORTS,
  packages: ['pg', 'kysely', 'pg-copy-streams', 'uuid', 'zod'],
});
const STORES = [
  'lists',
  'exports',
  'warehouse',
  'lake',
  'proof',
  'runs',
  'source',
  'status',
  'observability',
  'api/access',
  'api/console',
  'api/source-api',
];

/** The longest folder that holds a file has its rule. */
const RULES: Readonly<Record<string, Rule>> = {
  ...Object.fromEntries(
    FOUNDATION.map((room) => [
      room,
      { values: FOUNDATION, packages: ['uuid'] },
    ]),
  ),
  'src/logging': { values: FOUNDATION, packages: ['pino'] },
  'src/version.ts': { values: [], packages: ['package.json'] },
  'src/ledger': { values: FOUNDATION, packages: ['zod'] },
  // The tables that several stages share: segments, coverage, publications, leases.
  'src/catalog': store('src/catalog'),
  // A URL of Postgres is read where it is connected to.
  'src/config': { values: [...PURE, 'src/network'] },
  'src/lists': stage('zod'),
  'src/exports': stage('zod'),
  'src/warehouse': stage('zod'),
  // What a night proves to others, in forms that other people's tools read.
  'src/proof': stage('zod'),
  // Its rooms go one way: what is on this machine, the tables' shapes, their logs, then who builds, asks and verifies.
  'src/lake': stage('@duckdb/node-api', 'zod'),
  'src/lake/local': {
    values: FOUNDATION,
    typeFiles: PORTS,
    packages: ['@duckdb/node-api'],
  },
  'src/lake/tables': {
    values: [...PURE, 'src/lake/local'],
    types: ['src/lake/delta'],
    packages: ['zod'],
  },
  'src/lake/delta': {
    ...stage('@duckdb/node-api', 'zod'),
    values: [...PURE, 'src/lake/local'],
  },
  // The one way out of the process, for every client.
  'src/network': { values: FOUNDATION, packages: ['undici', 'pg', 'ioredis'] },
  'src/source': { ...adapter(), values: [...PURE, 'src/network'] },
  'src/postgres': {
    ...adapter('pg', 'kysely', 'p-retry', 'pg-copy-streams', 'uuid'),
    values: [...PURE, 'src/network', 'migrations'],
  },
  'src/storage': reaching(
    adapter('@aws-sdk/client-s3', '@aws-sdk/credential-provider-node'),
  ),
  'src/state': {
    ...adapter('pg', 'ioredis'),
    values: [...PURE, 'src/network'],
  },
  'src/queue': {
    ...adapter('bullmq', 'ioredis', 'pg'),
    values: [...PURE, 'src/network'],
  },
  'src/embedded': { values: FOUNDATION },
  'src/sandbox': { values: PURE, packages: ['zod'] },
  jobs: edge('p-retry'),
  'src/runs': {
    ...edge('p-retry'),
    values: [
      ...PURE,
      'src/config',
      'src/network',
      'src/queue',
      'src/source',
      'src/status',
      'jobs',
    ],
    types: [...ADAPTERS, ...STAGES],
  },
  // What is known of the mirror, and the one place that decides whether it is complete.
  'src/status': { ...stage('zod'), values: [...PURE, 'src/catalog'] },
  'src/observability': reaching(
    edge(
      'fastify',
      'prom-client',
      'bullmq',
      'bullmq-otel',
      ...[
        'api',
        'exporter-trace-otlp-http',
        'otlp-exporter-base',
        'otlp-transformer',
        'resources',
        'sdk-metrics',
        'sdk-trace-node',
      ].map((name) => `@opentelemetry/${name}`),
    ),
  ),
  'src/worker': edge('bullmq'),
  'src/api': edge(
    'fastify',
    '@fastify/rate-limit',
    '@fastify/swagger',
    'prom-client',
    '@bull-board/api',
    '@bull-board/fastify',
    'bullmq',
  ),
  'src/cli': {
    ...edge('commander', 'uuid'),
    // `query` asks the lake itself; every other stage is reached through the composition.
    values: [
      ...PURE,
      'src/config',
      'src/network',
      'src/api',
      'src/lake',
      'src/proof',
      'src/sandbox',
      'src/status',
      'src/observability',
      'jobs',
      'src/runs',
      COMPOSITION,
    ],
  },
  migrations: { values: PURE, packages: ['kysely'] },
  ...Object.fromEntries(
    STORES.map((room) => [`src/${room}/store`, store(`src/${room}`)]),
  ),
  // A run records what the mirror's status was when it ended; no other store reads the status.
  'src/runs/store': store('src/runs', 'src/status'),
};

/** Only these import what is built: the command line, and the processes that start it. */
const ABOVE_COMPOSITION = [COMPOSITION, 'src/cli'];
const MAINS: readonly string[] = ['src/main.ts', 'src/query-process.ts'];

function isBelow(path: string, folders: readonly string[]): boolean {
  return folders.some(
    (folder) => path === folder || path.startsWith(`${folder}/`),
  );
}

function folderOf(path: string): string | undefined {
  const folders = Object.keys(RULES).filter((folder) =>
    isBelow(path, [folder]),
  );
  return folders.toSorted((a, b) => b.length - a.length)[0];
}

function isAllowed(
  from: Module,
  used: Import,
  folder: string,
  rule: Rule,
): boolean {
  if (used.target === 'package.json') return isPackageAllowed(used, rule);
  if (!used.isOwn)
    return used.target.startsWith('node:')
      ? isBuiltinAllowed(from, used)
      : isPackageAllowed(used, rule);
  if (isBelow(used.target, [folder, ...rule.values])) return true;
  return (
    used.isType &&
    (isBelow(used.target, rule.types ?? []) ||
      rule.typeFiles?.test(used.target) === true)
  );
}

/** The environment is read in one place; `process` as an import would hide a second one. */
function isBuiltinAllowed(from: Module, used: Import): boolean {
  return (
    used.target !== 'node:process' || from.path === 'src/config/environment.ts'
  );
}

function isPackageAllowed(used: Import, rule: Rule): boolean {
  return rule.packages?.includes(used.target) === true;
}

/** One line for each import that goes the wrong way. */
function violations(graph: readonly Module[]): string[] {
  return graph.flatMap((module) => {
    const wrong = module.imports.filter((used) => !isRightWay(module, used));
    const lines = wrong.map(
      ({ target, isType }) =>
        `${module.path} → ${target}${isType ? ' (type)' : ''}`,
    );
    return hasPlace(module)
      ? lines
      : [...lines, `${module.path} lies in no folder that has a rule`];
  });
}

function isRightWay(module: Module, used: Import): boolean {
  if (isBelow(module.path, UNSHIPPED)) return true;
  if (isBelow(used.target, UNSHIPPED)) return false;
  const isBuilt = isBelow(used.target, [COMPOSITION]);
  if (
    isBuilt &&
    !isBelow(module.path, ABOVE_COMPOSITION) &&
    !MAINS.includes(module.path)
  )
    return false;
  const folder = folderOf(module.path);
  const rule = folder === undefined ? undefined : RULES[folder];
  if (folder === undefined || rule === undefined) return true;
  return isAllowed(module, used, folder, rule);
}

function hasPlace(module: Module): boolean {
  const { path } = module;
  return (
    folderOf(path) !== undefined ||
    MAINS.includes(path) ||
    isBelow(path, [COMPOSITION, ...UNSHIPPED])
  );
}

/** An answer passes these rooms of `src/exports` in this order. */
const EXPORT_ROOMS = ['planning', 'download', 'validation', 'publishing'];
const EXPORTS = 'src/exports';

/**
 * Returns one line for each file of an export room from which imports lead to a room
 * further right. Files directly in `src/exports` belong to no room: what they import
 * counts as imported by their importers, so that no detour is possible.
 */
function exportsToTheRight(modules: readonly Module[]): string[] {
  const byPath = new Map(modules.map((module) => [module.path, module]));
  const roomOf = (path: string): number =>
    EXPORT_ROOMS.findIndex((room) => isBelow(path, [`${EXPORTS}/${room}`]));
  return modules
    .filter(({ path }) => roomOf(path) >= 0)
    .flatMap(({ path }) => {
      const wrong = reachable(path, byPath).filter(
        (target) => roomOf(target) > roomOf(path),
      );
      return wrong.map((target) => `${path} → … → ${target}`);
    });
}

/** Returns the files of `src/exports` that a file imports, directly or through others. */
function reachable(
  start: string,
  byPath: ReadonlyMap<string, Module>,
): string[] {
  const reached = new Set([start]);
  for (const path of reached) {
    const targets = byPath.get(path)?.imports.map(({ target }) => target) ?? [];
    for (const target of targets)
      if (isBelow(target, [EXPORTS])) reached.add(target);
  }
  reached.delete(start);
  return [...reached];
}

/** Returns the graph of the folders of `src` and of `jobs`, as if each were one module. */
function joinRooms(modules: readonly Module[]): Module[] {
  const roomOf = (path: string): string =>
    path
      .split('/')
      .slice(0, path.startsWith('src/') ? 2 : 1)
      .join('/');
  const shipped = modules.filter(({ path }) => !isBelow(path, UNSHIPPED));
  const rooms = Map.groupBy(shipped, ({ path }) => roomOf(path));
  return [...rooms].map(([path, members]) => {
    const imports = members
      .flatMap((module) => module.imports)
      .filter(({ isOwn, target }) => isOwn && roomOf(target) !== path)
      .map((used) => ({ ...used, target: roomOf(used.target) }));
    return { path, imports, computed: [] };
  });
}

const graph = readImportGraph(ROOT, FOLDERS);

describe('imports', () => {
  test('form a graph over every file of the tree', () => {
    const files = [
      ...FOLDERS.map((folder) => `${folder}/**/*.ts`),
      // The scripts that the console loads too.
      'src/format/*.js',
    ].flatMap((pattern) => globSync(pattern, { cwd: ROOT }));
    expect(graph.map((module) => module.path).toSorted()).toEqual(
      files.toSorted(),
    );
    expect(graph.length).toBeGreaterThan(20);
    expect(graph.flatMap((module) => module.imports).length).toBeGreaterThan(
      graph.length,
    );
    for (const folder of [
      ...PURE,
      ...STAGES.slice(0, 3),
      ...ADAPTERS,
      ...EDGES,
    ]) {
      expect(graph.some((module) => isBelow(module.path, [folder]))).toBe(true);
    }
  });

  test('lead to files that exist', () => {
    const own = graph.flatMap((module) =>
      module.imports.filter((used) => used.isOwn),
    );
    const targets = [...new Set(own.map((used) => used.target))];
    expect(
      targets.filter((target) => !existsSync(resolve(ROOT, target))),
    ).toEqual([]);
  });

  test('are computed only where the migrations are listed', () => {
    const computing = graph
      .filter((module) => module.computed.length > 0)
      .map((module) => module.path);
    expect(
      computing.filter((path) => path !== 'src/postgres/migrate.ts'),
    ).toEqual([]);
  });

  test('go only in the stated directions', () => {
    expect(violations(graph)).toEqual([]);
  });

  test('of fast-check go through the one module that gives it its seed', () => {
    const users = graph.filter((module) =>
      module.imports.some(({ target }) => target === 'fast-check'),
    );
    expect(users.map((module) => module.path)).toEqual([
      'test/support/properties.ts',
    ]);
  });

  test('of the independent test servers lead to nothing of the product', () => {
    const servers = graph.filter((module) => isBelow(module.path, INDEPENDENT));
    const used = servers.flatMap((module) =>
      module.imports.filter(({ target }) => !isIndependent(target)),
    );
    expect(servers.length).toBeGreaterThan(0);
    expect(used).toEqual([]);
  });

  test('of the export rooms lead only to the left, types included', () => {
    expect(
      graph.some(({ path }) => path === `${EXPORTS}/export-state.ts`),
    ).toBe(true);
    expect(exportsToTheRight(graph)).toEqual([]);
  });

  test('of the decisions of an export lead to nothing that reads, writes or waits', () => {
    const decisions = graph.find(
      ({ path }) => path === `${EXPORTS}/export-state.ts`,
    );
    const values = decisions?.imports.filter(({ isType }) => !isType);
    expect(values).toEqual([]);
  });

  test('form no cycle, types included', () => {
    expect(findCycles(graph, true)).toEqual([]);
  });

  test('form no cycle between rooms', () => {
    expect(findCycles(joinRooms(graph), false)).toEqual([]);
  });
});

describe('the check of imports', () => {
  const module = (
    path: string,
    target: string,
    isOwn: boolean,
    isType = false,
  ): Module => ({
    path,
    imports: [{ target, isOwn, isType }],
    computed: [],
  });

  test.each([
    [
      'a stage that imports a stage',
      module('src/lists/a.ts', 'src/exports/b.ts', true, true),
    ],
    [
      'a stage that imports a driver',
      module('src/warehouse/a.ts', 'pg', false, true),
    ],
    [
      'a stage that imports an adapter',
      module('src/lists/a.ts', 'src/postgres/b.ts', true),
    ],
    [
      'an adapter that imports an adapter',
      module('src/source/a.ts', 'src/state/b.ts', true),
    ],
    [
      'an adapter that imports a stage',
      module('src/postgres/a.ts', 'src/lists/ports.ts', true),
    ],
    ['the console that imports a driver', module('src/api/a.ts', 'pg', false)],
    [
      'the product that imports a test',
      module('src/cli/a.ts', 'test/support/b.ts', true),
    ],
    [
      'what imports the composition root',
      module('jobs/a.ts', 'src/app/app.ts', true, true),
    ],
    [
      'a second reader of the environment',
      module('src/time/a.ts', 'node:process', false),
    ],
    [
      'a store other than that of runs that imports the status',
      module('src/lists/store/a.ts', 'src/status/store/completeness.ts', true),
    ],
    [
      'the status that imports runs',
      module('src/status/store/a.ts', 'src/runs/store/b.ts', true, true),
    ],
    ['a folder without a rule', module('src/utils/a.ts', 'node:fs', false)],
  ])('finds %s', (_, planted) => {
    expect(violations([planted])).toHaveLength(1);
  });

  test('finds an export room that imports one to its right, on a detour too', () => {
    const detour = [
      module('src/exports/planning/a.ts', 'src/exports/b.ts', true, true),
      module('src/exports/b.ts', 'src/exports/publishing/c.ts', true, true),
    ];
    expect(exportsToTheRight(detour)).toHaveLength(1);
    const left = module(
      'src/exports/validation/a.ts',
      'src/exports/planning/b.ts',
      true,
    );
    expect(exportsToTheRight([left])).toEqual([]);
  });

  test('allows the types of a port', () => {
    expect(
      violations([
        module('src/postgres/a.ts', 'src/lists/ports.ts', true, true),
      ]),
    ).toEqual([]);
  });

  test('finds cycles of values and of types', () => {
    const values = [module('a.ts', 'b.ts', true), module('b.ts', 'a.ts', true)];
    const types = [
      module('a.ts', 'b.ts', true),
      module('b.ts', 'a.ts', true, true),
    ];
    expect(findCycles(values, false)).toEqual([['a.ts', 'b.ts', 'a.ts']]);
    expect(findCycles(types, false)).toEqual([]);
    expect(findCycles(types, true)).toHaveLength(1);
  });
});
