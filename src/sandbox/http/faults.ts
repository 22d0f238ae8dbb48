/** Misbehaviour on demand: a fault looks at each request and says what goes wrong with it, or nothing. */

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
