/**
 * Four projects by file suffix: what needs servers, and what takes long, says so in its name. Limits are for
 * what hangs: far beyond what a busy machine needs, for nothing here is told by how long it took.
 */
import { defineConfig } from 'vitest/config';

const SECOND_MS = 1000;
const services = { globalSetup: './test/support/global-setup.ts' };

export default defineConfig({
  test: {
    pool: 'forks',
    expect: { poll: { timeout: 60 * SECOND_MS } },
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/**/*.{int,fault,browser}.test.ts'],
          testTimeout: 90 * SECOND_MS,
          hookTimeout: 90 * SECOND_MS,
        },
      },
      {
        extends: true,
        test: {
          name: 'integration',
          include: ['test/**/*.int.test.ts'],
          testTimeout: 180 * SECOND_MS,
          hookTimeout: 180 * SECOND_MS,
          ...services,
        },
      },
      {
        extends: true,
        test: {
          name: 'browser',
          include: ['test/**/*.browser.test.ts'],
          testTimeout: 180 * SECOND_MS,
          hookTimeout: 240 * SECOND_MS,
          ...services,
        },
      },
      {
        extends: true,
        test: {
          name: 'faults',
          include: ['test/**/*.fault.test.ts'],
          testTimeout: 300 * SECOND_MS,
          hookTimeout: 180 * SECOND_MS,
          ...services,
        },
      },
    ],
  },
});
