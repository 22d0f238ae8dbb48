/**
 * One HTTP request to the source: its headers, its time limits, and an answer that can be
 * closed.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { Dispatcher } from 'undici';
import { RetryableError } from '../../errors/errors.ts';
import { decoded, DripGuard, type DripLimit } from './body.ts';
import { trailerError, transportError } from '../retry/failure.ts';

export interface HttpLimits {
  /** Until the status line: an export sends nothing before its query ends. */
  readonly headersMs: number;
  /** Between two pieces of the body. */
  readonly idleMs: number;
  /** The whole call, body included. */
  readonly callMs: number;
  readonly drip: DripLimit;
}

export const CONNECT_MS = 10_000;
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

export interface HttpAnswer extends AsyncDisposable {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Decompressed; iterate once. Its errors are classified. */
  readonly body: AsyncIterable<Buffer>;
  /** Of the body, as they came over the wire so far. */
  wireBytes(): number;
  /**
   * The transport itself says where the body ends: otherwise it ends with the connection,
   * and its end is unproven.
   */
  readonly isFramed: boolean;
}

export interface HttpRequest {
  /** For messages: "list" or "export". */
  readonly action: string;
  readonly url: URL;
  readonly limits: HttpLimits;
  /** How many bytes of what was asked for have come; absent: all that come count. */
  readonly usefulBytes?: () => number;
}

/**
 * Resolves with the answer's headers, whatever its status. The caller disposes of the
 * answer, which ends the request at the source where it is not over.
 * @throws RetryableError | PermanentError as the retry policy classes the failure
 */
export type HttpGet = (
  request: HttpRequest,
  caller: AbortSignal,
) => Promise<HttpAnswer>;

/** @param headers of each request */
export function openHttp(
  dispatcher: Dispatcher,
  headers: Readonly<Record<string, string>>,
): HttpGet {
  return async (request, caller) => {
    const { action, url, limits, usefulBytes } = request;
    const limit = AbortSignal.timeout(limits.callMs);
    const signal = AbortSignal.any([caller, limit]);
    const guard = new DripGuard(limits.drip, limits.headersMs);

    function classify(error: unknown) {
      if (caller.aborted) return caller.reason as unknown;
      return limit.aborted
        ? tooLong(request, error)
        : transportError(action, whereOf(url), error);
    }

    /**
     * Redirects are followed within the origin only: elsewhere, the Authorization header
     * would be given to a stranger.
     */
    async function send(
      at: URL,
      redirects = 0,
    ): Promise<Dispatcher.ResponseData> {
      const answer = await dispatcher.request({
        origin: at.origin,
        path: `${at.pathname}${at.search}`,
        method: 'GET',
        headers,
        headersTimeout: limits.headersMs,
        bodyTimeout: limits.idleMs,
        signal,
      });
      // The body may fail before it is read; its reader gets the error all the same.
      answer.body.on('error', () => undefined);
      const { location } = answer.headers;
      if (!REDIRECTS.has(answer.statusCode) || typeof location !== 'string')
        return answer;
      const target = URL.canParse(location, at.href)
        ? new URL(location, at)
        : undefined;
      if (target?.origin !== at.origin || redirects >= REDIRECTS_MAX)
        return answer;
      await answer.body.dump({ limit: 65_536, signal });
      return send(target, redirects + 1);
    }

    async function* readBody(answer: Dispatcher.ResponseData) {
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
      const answer = await send(url);
      return {
        status: answer.statusCode,
        headers: answer.headers,
        body: readBody(answer),
        wireBytes: () => guard.wireBytes,
        isFramed: isFramed(answer.headers),
        // Closes the connection of an unfinished answer, which cancels the request at the
        // source.
        [Symbol.asyncDispose]: async () => void answer.body.destroy(),
      };
    } catch (error) {
      throw classify(error);
    }
  };
}

/**
 * The origin and the path: a query holds cursors and ids, which are too long for a
 * message.
 */
export function whereOf(url: URL): string {
  return `${url.origin}${url.pathname}`;
}

function tooLong(
  { action, url, limits: { callMs } }: HttpRequest,
  cause: unknown,
): RetryableError {
  const message = `Cannot ${action} ${whereOf(url)}: the call took longer than ${callMs / 1000} s`;
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
