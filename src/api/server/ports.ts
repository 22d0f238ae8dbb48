/** What the read API and the console need from the rest of the mirror. */
import type { MetricsRegistry, Probe } from '../../observability/metrics.ts';
import type { Rows } from '../../postgres/api-rows.ts';
import type { ConsoleDeps } from '../console/ports.ts';
import type { MirrorDeps } from '../mirror/ports.ts';

export interface ApiDeps extends MirrorDeps, ConsoleDeps {
  /** Reads the lists, the console's data and the sessions. */
  readonly rows: Rows;
  /** The parts that `/readyz` checks. */
  readonly probes: readonly Probe[];
  readonly metrics: MetricsRegistry;
}
