/**
 * Misbehaviour on demand. A fault looks at each request and says what goes wrong with it, or nothing; the
 * server asks them in the order they were added, and the first answer counts.
 */

export type Route = 'parties' | 'checkpoints' | 'export' | 'other';

/** What a fault may judge by. */
export interface SandboxRequest {
  route: Route;
  method: string;
  path: string;
  /** The query string as it came, and read. */
  queryText: string;
  query: URLSearchParams;
  /** The how-manieth request of its route this is, from 1. */
  nth: number;
  /** The header of that name. */
  authorization: string | undefined;
}

/** What goes wrong with one request. Bytes count the body before it is compressed. */
export interface Misbehaviour {
  /** Time before anything else happens, besides the latency of all. */
  delayMs?: number;
  /** Nothing else happens before this is settled: how a test holds a request until it has seen what it waits for. */
  until?: Promise<unknown>;
  /** The whole answer, instead of the service's. */
  answer?: { status: number; body: string; headers?: Readonly<Record<string, string>> };
  /** Lists only: what becomes of the JSON. */
  rewrite?: (json: string) => string;
  /** Exports only: the query fails there. 0: an error status; later: the error follows the last byte of a 200. */
  errorAfterBytes?: number;
  /** The connection breaks there. */
  cutAfterBytes?: number;
  /** Nothing comes any more from there on, and the connection stays. */
  stallAfterBytes?: number;
}

export type Fault = (request: SandboxRequest) => Misbehaviour | undefined;

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
