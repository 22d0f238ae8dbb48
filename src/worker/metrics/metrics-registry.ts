/** The metrics of this process, told as Prometheus text to whoever scrapes it. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';

const PREFIX = 'ledger_mirror_';

export class MetricsRegistry extends Registry {
  readonly #updates: (() => Promise<void>)[] = [];

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

  /** @param update brings up to date what is only known when it is asked for; never fails */
  beforeRead(update: () => Promise<void>): void {
    this.#updates.push(update);
  }

  override async metrics(): Promise<string> {
    await Promise.all(this.#updates.map((update) => update()));
    return super.metrics();
  }
}
