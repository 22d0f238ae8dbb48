/** Metrics whose names begin as all of this program's do. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';

const PREFIX = 'ledger_mirror_';

export class PrefixedRegistry extends Registry {
  /** `_total` is added to the name. */
  counter(name: string, help: string, ...labelNames: string[]): Counter {
    return new Counter({ name: `${PREFIX}${name}_total`, help, labelNames, registers: [this] });
  }

  gauge(name: string, help: string, ...labelNames: string[]): Gauge {
    return new Gauge({ name: `${PREFIX}${name}`, help, labelNames, registers: [this] });
  }

  histogram(name: string, help: string, buckets: number[], ...labelNames: string[]): Histogram {
    return new Histogram({ name: `${PREFIX}${name}`, help, buckets, labelNames, registers: [this] });
  }
}
