/** What every long-lived process tells of itself: its build, its disk, and the usual metrics of Node. */
import { statfs } from 'node:fs/promises';
import { collectDefaultMetrics, Gauge, Registry } from 'prom-client';
import type { MetricsSource } from './meters.ts';
import { PREFIX } from './work-metrics.ts';

/** Gauges under names of counters; the same numbers stand in `nodejs_active_handles` and the like, by type. */
const MISNAMED = [
  'nodejs_active_resources_total',
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
];

export interface ProcessFacts {
  readonly version: string;
  /** Whose disk is watched. */
  readonly dataDir: string;
}

/** Metrics that need nobody to report to them. */
export function processMetrics({ version, dataDir }: ProcessFacts): MetricsSource {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  new Gauge({
    name: `${PREFIX}build_info`,
    help: '1, with the versions as labels',
    labelNames: ['version', 'node'],
    registers: [registry],
  }).set({ version, node: process.versions.node }, 1);
  const free = new Gauge({
    name: `${PREFIX}data_dir_free_bytes`,
    help: 'Free space where DATA_DIR lies',
    registers: [],
    async collect() {
      try {
        const { bavail, bsize } = await statfs(dataDir, { bigint: true });
        this.set(Number(bavail * bsize));
      } catch {
        // No folder, no number: the process makes it where it needs one.
        this.remove();
      }
    },
  });
  registry.registerMetric(free);
  return { collect: async () => registry };
}
