/** What was asked so far: counts by route and status, for tests and for a look at what a client costs. */
import type { Route } from './faults.ts';

export interface RequestCount {
  route: Route;
  status: number;
  requests: number;
  /** What was written to answer them, headers included. */
  bytes: number;
}

export class RequestCounts {
  readonly #counts = new Map<string, RequestCount>();

  record(route: Route, status: number, bytes: number): void {
    const key = `${route} ${status}`;
    const count = this.#counts.get(key) ?? { route, status, requests: 0, bytes: 0 };
    count.requests += 1;
    count.bytes += bytes;
    this.#counts.set(key, count);
  }

  /** How many requests ended, of one route or of all, with one status or any. */
  of(route?: Route, status?: number): number {
    const matching = this.all().filter(
      (count) => (route ?? count.route) === count.route && (status ?? count.status) === count.status,
    );
    return matching.reduce((sum, count) => sum + count.requests, 0);
  }

  all(): RequestCount[] {
    return [...this.#counts.values()];
  }

  clear(): void {
    this.#counts.clear();
  }
}
