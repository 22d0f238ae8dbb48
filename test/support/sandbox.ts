/** The sandbox as tests have it: with its truth, what was asked of it, and faults on demand. */
import type { Fault, Misbehaviour, Route, SandboxRequest } from '../../src/sandbox/http/faults.ts';
import { startSandbox as serve, type Sandbox as Served } from '../../src/sandbox/http/server.ts';
import type { SandboxOptions } from '../../src/sandbox/options.ts';
import { Truth } from './sandbox-truth.ts';

export interface Sandbox extends Served {
  readonly truth: Truth;
  readonly requests: RequestCounts;
  readonly faults: Faults;
}

export async function startSandbox(options: SandboxOptions = {}): Promise<Sandbox> {
  const requests = new RequestCounts();
  const faults = new Faults();
  const served = await serve(options, {
    judge: (request) => faults.judge(request),
    onAnswered: (route, status, bytes) => requests.record(route, status, bytes),
  });
  return { ...served, truth: new Truth(served.network), requests, faults };
}

/** Asked in the order they were added; the first answer counts. */
export class Faults {
  readonly #faults = new Set<Fault>();

  /** @returns a function that takes the fault back */
  add(fault: Fault): () => void {
    this.#faults.add(fault);
    return () => this.#faults.delete(fault);
  }

  /** The next request of a route alone goes wrong. */
  once(route: Route, misbehaviour: Misbehaviour): void {
    const remove = this.add((request) => {
      if (request.route !== route) return undefined;
      remove();
      return misbehaviour;
    });
  }

  clear(): void {
    this.#faults.clear();
  }

  /** What goes wrong with this request. */
  judge(request: SandboxRequest): Misbehaviour {
    for (const fault of this.#faults) {
      const misbehaviour = fault(request);
      if (misbehaviour !== undefined) return misbehaviour;
    }
    return {};
  }
}

interface RequestCount {
  route: Route;
  status: number;
  requests: number;
  /** What was written to answer them, headers included. */
  bytes: number;
}

/** What was asked so far, by route and status. */
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
