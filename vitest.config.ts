/**
 * Eight projects by file suffix: what needs servers, and what takes long, says so in its name. Limits are for
 * what hangs: far beyond what a busy machine needs, for nothing here is told by how long it took.
 */
import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';
import { StoreNotice } from './test/support/stores/store-notice.ts';

const SECOND_MS = 1000;
/** Two on two cores: most files wait for servers and children. Beyond four they would wait for the one Postgres. */
const WORKERS = Math.min(4, Math.max(2, availableParallelism() - 1));
/** They wait for leases and outages most of the time. */
const FAULT_WORKERS = 3;
/** Ceph and Swift side by side. */
const STORE_WORKERS = 2;
const services = { globalSetup: './test/support/servers/global-setup.ts' };

export default defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: WORKERS,
    reporters: ['default', new StoreNotice()],
    teardownTimeout: 60 * SECOND_MS,
    // The summary of .ci/run shows an assertion's message, and nothing else of a failure.
    chaiConfig: { truncateThreshold: 2_000 },
    expect: { poll: { timeout: 60 * SECOND_MS } },
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: [
            'test/**/*.{int,fault,browser,store,engine,tool,surroundings}.test.ts',
          ],
          testTimeout: 120 * SECOND_MS,
          hookTimeout: 120 * SECOND_MS,
        },
      },
      {
        extends: true,
        test: {
          name: 'integration',
          include: ['test/**/*.int.test.ts'],
          testTimeout: 300 * SECOND_MS,
          hookTimeout: 180 * SECOND_MS,
          ...services,
        },
      },
      {
        extends: true,
        test: {
          name: 'browser',
          include: ['test/**/*.browser.test.ts'],
          testTimeout: 300 * SECOND_MS,
          hookTimeout: 240 * SECOND_MS,
          ...services,
        },
      },
      {
        extends: true,
        test: {
          name: 'stores',
          maxWorkers: STORE_WORKERS,
          sequence: { groupOrder: 2 },
          include: ['test/**/*.store.test.ts'],
          testTimeout: 600 * SECOND_MS,
          hookTimeout: 400 * SECOND_MS,
          ...services,
        },
      },
      {
        extends: true,
        test: {
          name: 'engines',
          maxWorkers: 1,
          sequence: { groupOrder: 3 },
          include: ['test/**/*.engine.test.ts'],
          testTimeout: 600 * SECOND_MS,
          hookTimeout: 180 * SECOND_MS,
        },
      },
      {
        extends: true,
        test: {
          name: 'tools',
          include: ['test/**/*.tool.test.ts'],
          testTimeout: 300 * SECOND_MS,
          hookTimeout: 180 * SECOND_MS,
          ...services,
        },
      },
      {
        extends: true,
        test: {
          name: 'surroundings',
          sequence: { groupOrder: 4 },
          include: ['test/surroundings/*.surroundings.test.ts'],
          testTimeout: 180 * SECOND_MS,
          hookTimeout: 180 * SECOND_MS,
          ...services,
        },
      },
      {
        extends: true,
        test: {
          name: 'faults',
          maxWorkers: FAULT_WORKERS,
          sequence: { groupOrder: 1 },
          include: ['test/**/*.fault.test.ts'],
          testTimeout: 600 * SECOND_MS,
          hookTimeout: 180 * SECOND_MS,
          ...services,
        },
      },
    ],
  },
});
