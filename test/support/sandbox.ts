/**
 * The sandbox for tests: with the truth about its network, a record of the requests to
 * it, and faults on demand.
 */
import type { Answer } from '../../src/sandbox/http/errors.ts';
import {
  sendAnswer,
  startSandbox as serve,
  type Sandbox as Served,
} from '../../src/sandbox/http/server.ts';
import type { SandboxOptions as ServedOptions } from '../../src/sandbox/options.ts';
import {
  holdBack,
  readRequest,
  rewritten,
  sendBroken,
  spoiltExport,
  type ExportHabits,
  type Fault,
  type Misbehaviour,
  type Route,
  type SandboxRequest,
} from './sandbox-faults.ts';
import { Truth } from './sandbox-truth.ts';

export interface SandboxOptions extends ServedOptions, ExportHabits {
  /**
   * What happens on a request with an end but no start, if it crashes a node of this
   * release. 'connection': only that answer breaks off. 'crash': the whole sandbox stops
   * answering, as the real node does.
   */
  readonly onFatalQuestion?: 'connection' | 'crash';
}

export interface Sandbox extends Served {
  /**
   * Advances the network: blocks are produced, and their contents are served from now on.
   */
  readonly advance: (durationMs: number) => void;
  readonly truth: Truth;
  readonly requests: RequestCounts;
  readonly faults: Faults;
  /**
   * The number of requests so far that would crash a node of this release: those with an
   * end but no start.
   */
  readonly fatalQuestions: () => number;
}

export async function startSandbox(
  options: SandboxOptions = {},
): Promise<Sandbox> {
  const {
    form = 'csv',
    assetRequired = false,
    onFatalQuestion,
    ...servedOptions
  } = options;
  const requests = new RequestCounts();
  const faults = new Faults();
  const nths = new Map<Route, number>();
  let fatalQuestions = 0;
  const served = await serve(
    servedOptions,
    async (request, response, answerTo) => {
      const asked = readRequest(request, nths);
      const bytesBefore = request.socket.bytesWritten;
      const gone = new AbortController();
      response.once('close', () => {
        gone.abort();
        requests.record(
          asked.route,
          response.statusCode,
          request.socket.bytesWritten - bytesBefore,
        );
      });
      response.on('error', () => gone.abort());
      const misbehaviour = faults.judge(asked);

      function answerSpoilt(): Answer | undefined {
        if (misbehaviour.answer !== undefined) {
          const {
            status,
            body,
            headers = { 'Content-Type': 'application/json' },
          } = misbehaviour.answer;
          return { status, headers, body };
        }
        const answer = answerTo();
        const isExport = asked.route === 'export' && asked.method === 'GET';
        if (!isExport) return answer && rewritten(answer, misbehaviour);
        const spoilt = spoiltExport(
          answer,
          asked,
          { form, assetRequired },
          misbehaviour,
        );
        if (spoilt !== undefined) return spoilt;
        fatalQuestions += 1;
        if (onFatalQuestion === 'crash') void served.stop();
        return undefined;
      }

      try {
        await holdBack(misbehaviour, gone.signal);
        const answer = answerSpoilt();
        const { cutAfterBytes, stallAfterBytes } = misbehaviour;
        if (
          answer === undefined ||
          (cutAfterBytes === undefined && stallAfterBytes === undefined)
        ) {
          await sendAnswer(request, response, () => answer);
        } else
          await sendBroken(
            request,
            response,
            answer,
            misbehaviour,
            gone.signal,
          );
      } catch (error) {
        if (!gone.signal.aborted) throw error;
      }
    },
  );
  const truth = new Truth(served.network);
  const { advance } = served.network;
  return {
    ...served,
    advance,
    truth,
    requests,
    faults,
    fatalQuestions: () => fatalQuestions,
  };
}

/**
 * The faults of a sandbox, tried in the order in which they were added; the first match
 * wins.
 */
export class Faults {
  readonly #faults = new Set<Fault>();

  /** @returns a function that removes the fault */
  add(fault: Fault): () => void {
    this.#faults.add(fault);
    return () => this.#faults.delete(fault);
  }

  /** Makes only the next request of a route go wrong. */
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

  /** Returns what goes wrong with this request. */
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
  /** Bytes written in response, headers included. */
  bytes: number;
}

/** Counts the requests so far, by route and status. */
export class RequestCounts {
  readonly #counts = new Map<string, RequestCount>();

  record(route: Route, status: number, bytes: number): void {
    const key = `${route} ${status}`;
    const count = this.#counts.get(key) ?? {
      route,
      status,
      requests: 0,
      bytes: 0,
    };
    count.requests += 1;
    count.bytes += bytes;
    this.#counts.set(key, count);
  }

  /**
   * Returns how many requests have ended, for one route or all, with one status or any.
   */
  of(route?: Route, status?: number): number {
    const matching = this.all().filter(
      (count) =>
        (route ?? count.route) === count.route &&
        (status ?? count.status) === count.status,
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
