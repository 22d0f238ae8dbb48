/**
 * Turns request failures into errors whose class is the retry decision. The policy is
 * data: what each status, gRPC code and errno means, and how long to wait after each
 * failure. With one exception, the text of a message decides nothing (see
 * `isAnswerTooLarge`).
 */
import type { IncomingHttpHeaders } from 'node:http';
import {
  errorCode,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../errors/errors.ts';
import { classifyErrno } from '../errors/faults.ts';
import {
  errorBodyLine,
  readErrorBody,
  sampleOf,
  type SourceErrorBody,
} from '../ledger/answer/error-body.ts';
import { parseJson } from '../ledger/json-fields.ts';
import { ProxyError } from '../network/tunnel.ts';
import { isLimitedInTime, retryAfterMs } from './wire/answer-headers.ts';

export interface RetryRule {
  /** The first delay. Each further delay is twice as long, with jitter. */
  readonly minMs: number;
  readonly maxMs: number;
  /**
   * Whether the source did no work for the request, so that even an export may be
   * retried.
   */
  readonly isCheap: boolean;
}

/**
 * How long to wait after each retryable failure. Codes that are not listed are
 * permanent.
 */
const RULES = {
  SOURCE_UNREACHABLE: { minMs: 500, maxMs: 5_000, isCheap: true },
  SOURCE_BUSY: { minMs: 2_000, maxMs: 60_000, isCheap: true },
  // A 429 does not say how long to wait, and the token bucket refills within seconds.
  SOURCE_RATE_LIMITED: { minMs: 2_000, maxMs: 60_000, isCheap: true },
  SOURCE_BANNED: { minMs: 60_000, maxMs: 600_000, isCheap: true },
  SOURCE_BROKE: { minMs: 250, maxMs: 15_000, isCheap: false },
  SOURCE_STALLED: { minMs: 1_000, maxMs: 30_000, isCheap: false },
  SOURCE_DRIP: { minMs: 1_000, maxMs: 30_000, isCheap: false },
  SOURCE_TIMEOUT: { minMs: 1_000, maxMs: 30_000, isCheap: false },
  SOURCE_STATUS: { minMs: 1_000, maxMs: 30_000, isCheap: false },
  ANSWER_NOT_UNDERSTOOD: { minMs: 1_000, maxMs: 30_000, isCheap: false },
} satisfies Readonly<Record<string, RetryRule>>;
export const RETRY_RULES: Readonly<Partial<Record<string, RetryRule>>> = RULES;

type FailureCode =
  | keyof typeof RULES
  | 'PROXY_REFUSED'
  | 'SOURCE_CLOSED'
  | 'SOURCE_CERTIFICATE'
  | 'SOURCE_UNAUTHORIZED'
  | 'SOURCE_FORBIDDEN'
  | 'SOURCE_REDIRECT'
  | 'SOURCE_ABSENT'
  | 'SOURCE_REFUSED'
  | 'PAGE_TOO_LARGE';

const BY_STATUS: Readonly<Partial<Record<number, FailureCode>>> = {
  401: 'SOURCE_UNAUTHORIZED',
  403: 'SOURCE_FORBIDDEN',
  404: 'SOURCE_ABSENT',
  // Without a proxy on our side, a 407 comes from a gateway in front of the source.
  407: 'SOURCE_UNAUTHORIZED',
  408: 'SOURCE_BUSY',
  425: 'SOURCE_BUSY',
  429: 'SOURCE_RATE_LIMITED',
  500: 'SOURCE_STATUS',
  501: 'SOURCE_REFUSED',
  502: 'SOURCE_BUSY',
  503: 'SOURCE_BUSY',
  504: 'SOURCE_STATUS',
};

/**
 * Failures by gRPC code. If the status is vague (200 or 500), the code decides, because
 * gateways map many codes to these statuses.
 */
const BY_GRPC_CODE: Readonly<Partial<Record<number, FailureCode>>> = {
  3: 'SOURCE_REFUSED',
  5: 'SOURCE_ABSENT',
  8: 'SOURCE_RATE_LIMITED',
  12: 'SOURCE_REFUSED',
  14: 'SOURCE_BUSY',
  16: 'SOURCE_UNAUTHORIZED',
};

/** The error codes of undici. `classifyErrno` handles network errnos. */
const BY_ERRNO: Readonly<Partial<Record<string, FailureCode>>> = {
  UND_ERR_CONNECT_TIMEOUT: 'SOURCE_UNREACHABLE',
  UND_ERR_HEADERS_TIMEOUT: 'SOURCE_STALLED',
  UND_ERR_BODY_TIMEOUT: 'SOURCE_STALLED',
  // Our own client was closed during the request.
  UND_ERR_CLOSED: 'SOURCE_CLOSED',
  UND_ERR_DESTROYED: 'SOURCE_CLOSED',
};

/**
 * Transient TLS alerts, from a TLS front end whose certificate or backend is missing,
 * for example during a reload. The prefix differs between OpenSSL versions.
 */
const PASSING_ALERT =
  /^ERR_SSL_.*(?:ALERT_INTERNAL_ERROR|HANDSHAKE_FAILURE|UNRECOGNIZED_NAME|USER_CANCELLED)$/;

/**
 * A TLS server's refusal of the client's certificate, or of a client without one. If the
 * authority of the client's certificate was renewed under the same name, the server sends
 * a DECRYPT_ERROR.
 */
const CERTIFICATE_ALERT =
  /^ERR_SSL_.*ALERT_(?:ACCESS_DENIED|DECRYPT_ERROR|BAD_CERTIFICATE|(?:UNSUPPORTED|NO)_CERTIFICATE|CERTIFICATE_(?:EXPIRED|REQUIRED|REVOKED|UNKNOWN)|UNKNOWN_CA)$/;

/** A response with a status other than 200, or with status 200 and an error body. */
export interface FailedAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** The beginning of the body. */
  readonly body: Buffer;
  /** The address of the proxy that forwarded the response or generated it. */
  readonly proxy?: string | undefined;
}

function codeOfAnswer(
  { status, headers, proxy }: FailedAnswer,
  body: SourceErrorBody | undefined,
): FailureCode {
  // The service's ban is the only 403 that says how long it lasts.
  if (status === 403 && isLimitedInTime(headers)) return 'SOURCE_BANNED';
  const byProxy = proxy === undefined ? undefined : codeOfForwarded(status);
  // The service's own error responses contain its error body, even if a proxy forwarded
  // them.
  if (byProxy !== undefined && (status === 407 || body === undefined))
    return byProxy;
  if (status === 429 && body !== undefined && isAnswerTooLarge(body))
    return 'PAGE_TOO_LARGE';
  if (status >= 300 && status < 400) return 'SOURCE_REDIRECT';
  const isVague = status === 200 || status === 500;
  const byBody =
    isVague && body !== undefined ? BY_GRPC_CODE[body.code] : undefined;
  const byStatus = byBody ?? BY_STATUS[status];
  if (byStatus !== undefined) return byStatus;
  return status >= 400 && status < 500 ? 'SOURCE_REFUSED' : 'SOURCE_STATUS';
}

/**
 * Classifies the status of a response that arrived through a proxy. A proxy's 504 is
 * not classified here, because it may mean a slow query, which must not be retried
 * immediately.
 * @returns undefined for a status that a proxy only forwards
 */
function codeOfForwarded(
  status: number,
): 'SOURCE_UNREACHABLE' | 'PROXY_REFUSED' | undefined {
  if (status === 407 || status === 403) return 'PROXY_REFUSED';
  return status === 502 || status === 503 ? 'SOURCE_UNREACHABLE' : undefined;
}

/** Classifies an errno. An unknown one is treated as a broken connection and retried. */
function codeOfErrno(errno: string): FailureCode {
  const fault = classifyErrno(errno);
  if (fault !== undefined)
    return fault === 'unreachable'
      ? 'SOURCE_UNREACHABLE'
      : 'SOURCE_CERTIFICATE';
  if (PASSING_ALERT.test(errno)) return 'SOURCE_UNREACHABLE';
  if (CERTIFICATE_ALERT.test(errno)) return 'SOURCE_UNAUTHORIZED';
  return BY_ERRNO[errno] ?? 'SOURCE_BROKE';
}

/**
 * Whether a response exceeded the gateway's size limit. That error has the same status
 * (429) and code (8) as the rate limit and no header of its own, so only the text
 * distinguishes the two. A retry would never help.
 */
function isAnswerTooLarge(body: SourceErrorBody): boolean {
  return body.code === 8 && /larger than max/.test(body.message);
}

const ADVICE: Readonly<Partial<Record<FailureCode, string>>> = {
  PROXY_REFUSED:
    'check the user and password in the proxy variables (HTTPS_PROXY, HTTP_PROXY), what the proxy lets through, and NO_PROXY',
  SOURCE_UNREACHABLE: 'check SOURCE_URL, the network and the proxy',
  SOURCE_CERTIFICATE: 'give its certificate authority in NODE_EXTRA_CA_CERTS',
  SOURCE_UNAUTHORIZED: 'check SOURCE_AUTHORIZATION',
  SOURCE_ABSENT: 'check SOURCE_URL and SOURCE_EXPORT_PATH',
  SOURCE_FORBIDDEN:
    'check SOURCE_AUTHORIZATION, the headers that a gateway in front of ' +
    'it requires (SOURCE_HEADERS), and what this client is allowed to ' +
    'request',
};

/** Transient statuses of a refused tunnel: request timeout, too many requests. */
const PASSING: ReadonlySet<number> = new Set([408, 429]);

/** Creates the error for a failed transport. Our own errors are returned unchanged. */
export function transportError(
  action: string,
  where: string,
  error: unknown,
): Error {
  if (error instanceof RetryableError || error instanceof PermanentError)
    return error;
  if (error instanceof ProxyError) return tunnelError(action, where, error);
  const errno = errnoOf(error);
  const code = codeOfErrno(errno);
  const state =
    error instanceof Error && error.message !== '' ? error.message : errno;
  return failure(code, `Cannot ${action} ${where}: ${state}`, {
    meta: { where, errno },
    cause: error,
    advice: CERTIFICATE_ALERT.test(errno)
      ? 'check SOURCE_CLIENT_CERT and SOURCE_CLIENT_KEY'
      : undefined,
  });
}

/**
 * Creates the error for a failed tunnel. If the proxy is unreachable or cannot reach
 * the source, a later attempt may succeed; if it refuses, no attempt will.
 */
function tunnelError(action: string, where: string, error: ProxyError): Error {
  const { proxy, status } = error;
  const mayPass = status === undefined || status >= 500 || PASSING.has(status);
  const code = mayPass ? 'SOURCE_UNREACHABLE' : 'PROXY_REFUSED';
  return failure(code, `Cannot ${action} ${where}: ${error.message}`, {
    meta: { where, proxy, status },
    cause: error,
  });
}

/** Creates the error for any response that is not a successful 200. */
export function answerError(
  action: string,
  where: string,
  answer: FailedAnswer,
): Error {
  const { status, headers, proxy } = answer;
  const body = errorBodyOf(answer.body);
  const code = codeOfAnswer(answer, body);
  // The body of a redirect repeats its target, including the query, so it is not shown.
  const shown = code === 'SOURCE_REDIRECT' ? Buffer.alloc(0) : answer.body;
  const detail = body === undefined ? sampleOf(shown) : errorBodyLine(body);
  const to =
    code === 'SOURCE_REDIRECT' ? `, to ${redirectTarget(headers, where)}` : '';
  const isOfProxy = proxy !== undefined && body === undefined;
  const who = isOfProxy
    ? `the proxy ${proxy}, or what it reaches,`
    : 'the source';
  const state = `${who} answers ${status}${to}${detail === '' ? '' : ` (${detail})`}`;
  const meta = {
    where,
    status,
    ...(isOfProxy ? { proxy } : {}),
    ...(body ?? { sample: detail }),
  };
  const details = { meta, retryAfterMs: retryAfterMs(headers, Date.now()) };
  return failure(code, `Cannot ${action} ${where}: ${state}`, details);
}

/**
 * Creates the error if a trailer reports that the server failed while sending the body.
 */
export function trailerError(
  action: string,
  where: string,
  trailers: Readonly<Record<string, string>>,
): RetryableError | undefined {
  const status = trailers['grpc-status'] ?? '0';
  if (status === '0' || status === '') return undefined;
  const shownStatus = sampleOf(Buffer.from(status));
  const detail = sampleOf(Buffer.from(trailers['grpc-message'] ?? ''));
  return new RetryableError(
    `Cannot ${action} ${where}: the source reports after its answer that it broke off (status ${shownStatus}, ${detail})`,
    { code: 'SOURCE_ERROR_IN_STREAM', meta: { where, status } },
  );
}

/**
 * Parses the service's error body.
 * @returns undefined for any other body, such as a proxy's error page; callers show a
 *   sample of it
 */
export function errorBodyOf(bytes: Buffer): SourceErrorBody | undefined {
  return readErrorBody(parseJson(bytes.toString('utf8')));
}

interface FailureDetails {
  readonly meta: Readonly<Record<string, unknown>>;
  readonly cause?: unknown;
  readonly retryAfterMs?: number | undefined;
  /** Replaces the advice that belongs to the code. */
  readonly advice?: string | undefined;
}

/** Creates the error. Its class, which depends on the code, is the retry decision. */
function failure(
  code: FailureCode,
  state: string,
  { advice = ADVICE[code], ...details }: FailureDetails,
): Error {
  const message = advice === undefined ? state : `${state}; ${advice}`;
  if (code === 'SOURCE_UNREACHABLE')
    return new UnreachableError(message, { code, ...details });
  if (RETRY_RULES[code] !== undefined)
    return new RetryableError(message, { code, ...details });
  return new PermanentError(message, {
    code,
    meta: details.meta,
    cause: details.cause,
  });
}

/**
 * Finds the errno. undici wraps some socket errors, and attempts to connect to several
 * addresses fail with an AggregateError.
 */
function errnoOf(error: unknown): string {
  const code = errorCode(error);
  if (code !== 'UNKNOWN' && code !== 'UND_ERR_SOCKET') return code;
  if (error instanceof AggregateError && error.errors.length > 0)
    return errnoOf(error.errors[0]);
  if (error instanceof Error && error.cause !== undefined)
    return errnoOf(error.cause);
  return code;
}

/** Returns only the origin, because a proxy may have put secrets into the query. */
function redirectTarget(
  { location = '' }: IncomingHttpHeaders,
  where: string,
): string {
  const target = URL.canParse(location, where)
    ? new URL(location, where).origin
    : undefined;
  return target === undefined
    ? 'nowhere'
    : `${target}; give that as SOURCE_URL if it is right`;
}
