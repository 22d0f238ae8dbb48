/** All metrics of a process: as Prometheus text where somebody scrapes, as objects where they are sent. */
import type { MetricObjectWithValues, MetricValueWithName, Registry } from 'prom-client';

export type MeteredObject = MetricObjectWithValues<MetricValueWithName<string>>;

/** Metrics of a part of the process. */
export interface MetricsSource {
  /** Brings up to date what is only known when it is asked for. Never fails. */
  collect(): Promise<Registry>;
}

export class Meters {
  readonly #sources: MetricsSource[];

  constructor(sources: readonly MetricsSource[]) {
    this.#sources = [...sources];
  }

  add(source: MetricsSource): void {
    this.#sources.push(source);
  }

  async text(): Promise<string> {
    const registries = await this.#collect();
    return (await Promise.all(registries.map((registry) => registry.metrics()))).join('\n');
  }

  async objects(): Promise<readonly MeteredObject[]> {
    const registries = await this.#collect();
    const objects = await Promise.all(registries.map((registry) => registry.getMetricsAsJSON()));
    // Those of a histogram have names of their own, which prom-client's types leave out.
    return objects.flat() as MeteredObject[];
  }

  #collect(): Promise<Registry[]> {
    return Promise.all(this.#sources.map((source) => source.collect()));
  }
}
