/**
 * The retry policy as data: what a status, a gRPC code or an errno means, and how long each
 * is waited for. The text of a message decides nothing, with the one exception named below.
 */
import { classifyErrno } from '../../core/faults.ts';
import type { SourceErrorBody } from '../../ledger/answer/error-body.ts';

export interface RetryRule {
  /** First delay; each further one is twice as long, with jitter. */
  readonly minMs: number;
  readonly maxMs: number;
  /** The source did no work for the request, so that even an export may be sent again at once. */
  readonly isCheap: boolean;
}

/** How long each retryable failure is waited for. A code that is not here is permanent. */
const RULES = {
  SOURCE_UNREACHABLE: { minMs: 500, maxMs: 5_000, isCheap: true },
  SOURCE_BUSY: { minMs: 2_000, maxMs: 60_000, isCheap: true },
  // No hint comes with a 429, and the bucket refills within seconds.
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

export type FailureCode =
  | keyof typeof RULES
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

/** Consulted where the status says nothing (200 or 500): proxies flatten statuses. */
const BY_GRPC_CODE: Readonly<Partial<Record<number, FailureCode>>> = {
  3: 'SOURCE_REFUSED',
  5: 'SOURCE_ABSENT',
  8: 'SOURCE_RATE_LIMITED',
  12: 'SOURCE_REFUSED',
  14: 'SOURCE_BUSY',
  16: 'SOURCE_UNAUTHORIZED',
};

/** undici's own; the network's are in `classifyErrno`. */
const BY_ERRNO: Readonly<Partial<Record<string, FailureCode>>> = {
  UND_ERR_CONNECT_TIMEOUT: 'SOURCE_UNREACHABLE',
  UND_ERR_PRX_CONN: 'SOURCE_UNREACHABLE',
  UND_ERR_PRX_TLS: 'SOURCE_UNREACHABLE',
  UND_ERR_HEADERS_TIMEOUT: 'SOURCE_STALLED',
  UND_ERR_BODY_TIMEOUT: 'SOURCE_STALLED',
  // The client was closed during the request.
  UND_ERR_CLOSED: 'SOURCE_CLOSED',
  UND_ERR_DESTROYED: 'SOURCE_CLOSED',
};

/** What an HTTP answer other than a good 200 means. A 403 that says for how long is a ban. */
export function codeOfStatus(
  status: number,
  body: SourceErrorBody | undefined,
  isLimitedInTime: boolean,
): FailureCode {
  if (status === 403 && isLimitedInTime) return 'SOURCE_BANNED';
  if (status === 429 && body !== undefined && isAnswerTooLarge(body)) return 'PAGE_TOO_LARGE';
  if (status >= 300 && status < 400) return 'SOURCE_REDIRECT';
  const isVague = status === 200 || status === 500;
  const byBody = isVague && body !== undefined ? BY_GRPC_CODE[body.code] : undefined;
  return byBody ?? BY_STATUS[status] ?? (status >= 400 && status < 500 ? 'SOURCE_REFUSED' : 'SOURCE_STATUS');
}

/** What an error of the transport means: an unknown errno counts as a broken connection, and is retried. */
export function codeOfErrno(errno: string): FailureCode {
  const fault = classifyErrno(errno);
  if (fault !== undefined) return fault === 'unreachable' ? 'SOURCE_UNREACHABLE' : 'SOURCE_CERTIFICATE';
  return BY_ERRNO[errno] ?? 'SOURCE_BROKE';
}

/**
 * The gateway's own cap on an answer has the same status (429) and code (8) as the rate limit, and no
 * header of its own: here the text is the only signal, and retrying would never help.
 */
function isAnswerTooLarge(body: SourceErrorBody): boolean {
  return body.code === 8 && /larger than max/.test(body.message);
}

/**
 * The delay before attempt `failed + 1`: doubling from the rule's minimum, with jitter of up to half
 * of it, so that workers do not retry together.
 */
export function delayMs(rule: RetryRule, failed: number, random: () => number = Math.random): number {
  const whole = Math.min(rule.minMs * 2 ** (failed - 1), rule.maxMs);
  return Math.round(whole * (0.5 + random() / 2));
}
