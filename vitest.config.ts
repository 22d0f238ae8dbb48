/** Four projects by file suffix: what needs servers, and what takes long, says so in its name. */
import { defineConfig } from 'vitest/config';

const SECOND_MS = 1000;
const services = { globalSetup: './test/support/global-setup.ts' };

export default defineConfig({
  test: {
    pool: 'forks',
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          include: ['test/**/*.test.ts'],
          exclude: ['test/**/*.{int,fault,browser}.test.ts'],
          testTimeout: 10 * SECOND_MS,
        },
      },
      {
        extends: true,
        test: {
          name: 'integration',
          include: ['test/**/*.int.test.ts'],
          testTimeout: 30 * SECOND_MS,
          hookTimeout: 60 * SECOND_MS,
          ...services,
        },
      },
      {
        extends: true,
        test: {
          name: 'browser',
          include: ['test/**/*.browser.test.ts'],
          testTimeout: 40 * SECOND_MS,
          hookTimeout: 90 * SECOND_MS,
          ...services,
        },
      },
      {
        extends: true,
        test: {
          name: 'faults',
          include: ['test/**/*.fault.test.ts'],
          testTimeout: 180 * SECOND_MS,
          hookTimeout: 60 * SECOND_MS,
          ...services,
        },
      },
    ],
  },
});
