/** What every long-lived process tells of itself: its build, its disk, and the usual metrics of Node. */
import { statfs } from 'node:fs/promises';
import { collectDefaultMetrics } from 'prom-client';
import { version } from '../../core/version.ts';
import type { MetricsRegistry } from './metrics-registry.ts';

/** Gauges under names of counters; the same numbers stand in `nodejs_active_handles` and the like, by type. */
const MISNAMED = [
  'nodejs_active_resources_total',
  'nodejs_active_handles_total',
  'nodejs_active_requests_total',
];

/** @param dataDir whose disk is watched */
export function addProcessMetrics(registry: MetricsRegistry, dataDir: string): void {
  collectDefaultMetrics({ register: registry });
  for (const name of MISNAMED) registry.removeSingleMetric(name);
  registry
    .gauge('build_info', '1, with the versions as labels', 'version', 'node')
    .set({ version: version(), node: process.versions.node }, 1);
  const free = registry.gauge('data_dir_free_bytes', 'Free space where DATA_DIR lies');
  registry.beforeRead(async () => {
    try {
      const { bavail, bsize } = await statfs(dataDir, { bigint: true });
      free.set(Number(bavail * bsize));
    } catch {
      // No folder, no number: the process makes it where it needs one.
      free.remove();
    }
  });
}
