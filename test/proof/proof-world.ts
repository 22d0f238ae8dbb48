/**
 * Nights for tests of the log: ledgers in a warehouse and a store, and the statement of a
 * night that says what is held.
 */
import { createHash } from 'node:crypto';
import { beforeEach } from 'vitest';
import { loadAll } from '../../src/warehouse/load-all.ts';
import { LoadStore } from '../../src/warehouse/store/load-store.ts';
import { storedFiles } from '../../src/proof/log.ts';
import type { ProofFiles } from '../../src/proof/proof-files.ts';
import { generateKey } from '../../src/proof/signed-note.ts';
import { ProofStore } from '../../src/proof/store/proof-store.ts';
import {
  type NightFacts,
  openNightLog,
  type ProofDeps,
  writeNight,
  type WrittenStatement,
} from '../../src/proof/write-night.ts';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { HEADER_12 } from '../ledger/csv.ts';
import { forgetProofs } from '../support/mirror-arrange.ts';
import { NEVER_ABORTED } from '../support/samples.ts';
import { type LoadWorld, loadWorld } from '../warehouse/load-world.ts';
import { publish, row12 } from '../warehouse/published.ts';

const COVERED_TO = '2023-06-01T00:00:00.000000Z';

export interface ProofWorld extends LoadWorld {
  readonly store: ProofStore;
  readonly deps: () => ProofDeps;
  /** Publishes and loads a day of a ledger. */
  addDay(party: string, day: string, rows: number): Promise<void>;
  /** Writes the statement of a night. */
  night(name: string, deps?: Partial<ProofDeps>): Promise<WrittenStatement>;
}

/** Call it at the top level of a test file. */
export async function proofWorld(): Promise<ProofWorld> {
  const world = await loadWorld();
  const { pool } = world.database;
  const store = new ProofStore(world.warehouse);
  const key = generateKey('mirror.example/test');
  beforeEach(() => forgetProofs(pool));
  const deps = (): ProofDeps => ({
    store,
    objects: world.objects,
    key,
    signal: NEVER_ABORTED,
  });
  return {
    database: world.database,
    warehouse: world.warehouse,
    // The store is another one in each test.
    get objects() {
      return world.objects;
    },
    store,
    deps,
    async addDay(party, day, rows) {
      const times = Array.from(
        { length: rows },
        (_, index) => `${day} 01:00:${String(index).padStart(2, '0')}+00`,
      );
      const next = new Date(Date.parse(`${day}T00:00:00Z`) + 86_400_000);
      await publish(pool, world.objects, {
        party,
        from: `${day}T00:00:00Z`,
        to: next.toISOString(),
        header: HEADER_12,
        rows: times.map((time) => row12({ time, from: party })),
      });
      const repository = new LoadStore(world.warehouse);
      const loading = { repository, objects: world.objects };
      await loadAll(loading, NEVER_ABORTED, () => undefined);
    },
    async night(name, changed = {}) {
      const given = { ...deps(), ...changed };
      const log = await openNightLog(given);
      return writeNight(await reported(name, world.objects), log, given);
    },
  };
}

/** The report of a night lies in the store before its statement is written. */
async function reported(
  name: string,
  objects: ObjectStore,
): Promise<NightFacts> {
  const content = Buffer.from(`the report of ${name}\n`);
  const key = `runs/${name}.json`;
  await objects.publishBytes(key, content, NEVER_ABORTED);
  const hash = createHash('sha256').update(name).digest('hex');
  return {
    runId: `${hash.slice(0, 8)}-0000-4000-8000-000000000000`,
    report: { key, sha256: createHash('sha256').update(content).digest('hex') },
    source: 'http://127.0.0.1:3008/',
    heldAt: `2023-06-${String(Number(name) + 1).padStart(2, '0')}T02:00:00.000000Z`,
    verdict: 'complete',
    covers: { coveredTo: COVERED_TO, wanted: 2, covered: 2 },
    doubts: [],
    gaps: [],
  };
}

/** The files of a world's log. */
export function filesOf({ objects }: Pick<ProofWorld, 'objects'>): ProofFiles {
  return storedFiles(objects, NEVER_ABORTED);
}
