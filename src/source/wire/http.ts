/**
 * Sends an HTTP request to the source, with its headers and timeouts, and returns a
 * response that can be closed.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { RetryableError } from '../../errors/errors.ts';
import type { Answer, HttpClient } from '../../network/http-client.ts';
import { decoded, DripGuard, type DripLimit } from './body.ts';
import { trailerError, transportError } from '../failure.ts';

export interface HttpLimits {
  /**
   * How long to wait for the status line. An export sends nothing before its query has
   * finished.
   */
  readonly headersMs: number;
  /** How long to wait for the next chunk of the body. */
  readonly idleMs: number;
  /** How long the whole call may take, including the body. */
  readonly callMs: number;
  readonly drip: DripLimit;
}

const DRIP: DripLimit = { bytesPerSecondMin: 1024, windowMs: 120_000 };
export const LIST_LIMITS: HttpLimits = {
  headersMs: 30_000,
  idleMs: 60_000,
  callMs: 120_000,
  drip: DRIP,
};
export const EXPORT_LIMITS: HttpLimits = {
  headersMs: 15 * 60_000,
  idleMs: 60_000,
  callMs: 24 * 3_600_000,
  drip: DRIP,
};

const REDIRECTS: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
const REDIRECTS_MAX = 3;
const REDIRECT_BYTES_MAX = 65_536;

export interface HttpAnswer extends AsyncDisposable {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** The decompressed body, which can be iterated once. Its errors are classified. */
  readonly body: AsyncIterable<Buffer>;
  /**
   * Whether the transport itself marks the end of the body. If not, the body ends with
   * the connection, which does not prove that it is complete.
   */
  readonly isFramed: boolean;
  /** The address of the proxy that forwarded the response or generated it. */
  readonly proxy: string | undefined;
  /** Returns how many bytes of the body have arrived over the wire so far. */
  wireBytes(): number;
}

export interface HttpRequest {
  /** What messages call this request: "list" or "export". */
  readonly action: string;
  readonly url: URL;
  readonly limits: HttpLimits;
  /** The requested byte range; the response may contain the whole file instead. */
  readonly range?: { readonly start: number; readonly end: number } | undefined;
  /**
   * Returns how many bytes of the requested content have arrived. If absent, all bytes
   * count.
   */
  readonly usefulBytes?: () => number;
}

/**
 * Resolves once the response's headers have arrived, whatever its status. The caller
 * must dispose of the response, which also cancels the request at the source if it is
 * still running.
 * @throws RetryableError | PermanentError as the retry policy classifies the failure
 */
export type HttpGet = (
  request: HttpRequest,
  caller: AbortSignal,
) => Promise<HttpAnswer>;

/**
 * Creates the function that sends requests.
 * @param readHeaders returns the headers of a request, which may differ from one
 *   request to the next
 */
export function openHttp(
  client: HttpClient,
  readHeaders: () => Readonly<Record<string, string>>,
): HttpGet {
  return async (request, caller) => {
    const { action, url, limits, range, usefulBytes } = request;
    const part =
      range === undefined
        ? {}
        : { range: `bytes=${range.start}-${range.end - 1}` };
    const headers = { ...readHeaders(), ...part };
    const limit = AbortSignal.timeout(limits.callMs);
    const signal = AbortSignal.any([caller, limit]);
    const guard = new DripGuard(limits.drip, limits.headersMs);

    function classify(error: unknown): unknown {
      if (caller.aborted) return caller.reason;
      if (limit.aborted) return tooLong(request, error);
      return transportError(action, whereOf(url), error);
    }

    async function* readBody(answer: Answer): AsyncGenerator<Buffer, void> {
      const encoding = [answer.headers['content-encoding'] ?? []]
        .flat()
        .join(',');
      try {
        yield* decoded(guard.pass(answer.body, usefulBytes), encoding);
        const failed = trailerError(action, whereOf(url), answer.trailers);
        if (failed !== undefined) throw failed;
      } catch (error) {
        throw classify(error);
      }
    }

    try {
      const answer = await follow(client, url, { headers, limits, signal });
      return {
        status: answer.statusCode,
        headers: answer.headers,
        proxy: answer.proxy,
        body: readBody(answer),
        wireBytes: () => guard.wireBytes,
        isFramed: isFramed(answer.headers),
        // Closes the connection of an unfinished response, which cancels the request at
        // the source.
        [Symbol.asyncDispose]: async () => {
          answer.body.destroy();
        },
      };
    } catch (error) {
      throw classify(error);
    }
  };
}

interface Sending {
  readonly headers: Readonly<Record<string, string>>;
  readonly limits: HttpLimits;
  readonly signal: AbortSignal;
}

/**
 * Sends a GET and follows redirects within the origin. A redirect to a different origin
 * is returned as the response, because following it would send the Authorization header
 * there.
 */
async function follow(
  client: HttpClient,
  url: URL,
  { headers, limits, signal }: Sending,
): Promise<Answer> {
  let target = url;
  for (let redirects = 0; ; redirects += 1) {
    const answer = await client.request(target, {
      method: 'GET',
      headers,
      headersTimeout: limits.headersMs,
      bodyTimeout: limits.idleMs,
      signal,
    });
    // The body may fail before anything reads it. Its consumer still gets the error.
    answer.body.on('error', () => undefined);
    const next = REDIRECTS.has(answer.statusCode)
      ? redirectWithin(target, answer.headers['location'])
      : undefined;
    if (next === undefined || redirects >= REDIRECTS_MAX) return answer;
    await answer.body.dump({ limit: REDIRECT_BYTES_MAX, signal });
    target = next;
  }
}

/**
 * Resolves the location of a redirect.
 * @returns undefined if the location is not on the same origin
 */
function redirectWithin(from: URL, location: unknown): URL | undefined {
  if (typeof location !== 'string') return undefined;
  const target = URL.parse(location, from.href);
  return target?.origin === from.origin ? target : undefined;
}

/**
 * Returns the origin and the path, without the query, whose cursors and ids are too
 * long for a message.
 */
export function whereOf(url: URL): string {
  return `${url.origin}${url.pathname}`;
}

function tooLong(
  { action, url, limits: { callMs } }: HttpRequest,
  cause: unknown,
): RetryableError {
  const limit = `the call took longer than ${callMs / 1000} s`;
  const message = `Cannot ${action} ${whereOf(url)}: ${limit}`;
  return new RetryableError(message, {
    code: 'SOURCE_TIMEOUT',
    meta: { callMs },
    cause,
  });
}

function isFramed(headers: IncomingHttpHeaders): boolean {
  const isChunked = (headers['transfer-encoding'] ?? '').includes('chunked');
  return isChunked || headers['content-length'] !== undefined;
}
