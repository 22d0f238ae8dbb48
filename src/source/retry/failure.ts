/** Turns what went wrong on the wire into errors that carry the retry decision. */
import type { IncomingHttpHeaders } from 'node:http';
import { errorCode, PermanentError, RetryableError, UnreachableError } from '../../core/errors.ts';
import {
  errorBodyLine,
  errorBodyMeta,
  readErrorBody,
  sampleOf,
  type SourceErrorBody,
} from '../../ledger/answer/error-body.ts';
import { isLimitedInTime, retryAfterMs } from '../wire/answer-headers.ts';
import { codeOfErrno, codeOfStatus, RETRY_RULES, type FailureCode } from './retry-policy.ts';

const ADVICE: Readonly<Partial<Record<FailureCode, string>>> = {
  SOURCE_UNREACHABLE: 'check SOURCE_URL, the network and the proxy',
  SOURCE_CERTIFICATE: 'give its certificate authority in NODE_EXTRA_CA_CERTS',
  SOURCE_UNAUTHORIZED: 'check SOURCE_AUTHORIZATION',
  SOURCE_ABSENT: 'check SOURCE_URL and SOURCE_EXPORT_PATH',
  SOURCE_FORBIDDEN: 'check SOURCE_AUTHORIZATION and what this client may ask',
};

/** Our own errors pass unchanged; any other is a failure of the transport. */
export function transportError(action: string, where: string, error: unknown): Error {
  if (error instanceof RetryableError || error instanceof PermanentError) return error;
  const errno = errnoOf(error);
  const code = codeOfErrno(errno);
  const state = error instanceof Error && error.message !== '' ? error.message : errno;
  return failure(code, `Cannot ${action} ${where}: ${state}`, { meta: { where, errno }, cause: error });
}

/** An answer with another status than 200, or an error body with 200. */
export function answerError(
  action: string,
  where: string,
  answer: { readonly status: number; readonly headers: IncomingHttpHeaders; readonly body: Buffer },
): Error {
  const body = errorBodyOf(answer.body);
  const code = codeOfStatus(answer.status, body, isLimitedInTime(answer.headers));
  const said = body === undefined ? sampleOf(answer.body) : errorBodyLine(body);
  const meta = {
    where,
    status: answer.status,
    ...(body === undefined ? { sample: said } : errorBodyMeta(body)),
  };
  const to = code === 'SOURCE_REDIRECT' ? `, to ${redirectTarget(answer.headers, where)}` : '';
  const state = `the source answers ${answer.status}${to}${said === '' ? '' : ` (${said})`}`;
  return failure(code, `Cannot ${action} ${where}: ${state}`, {
    meta,
    retryAfterMs: retryAfterMs(answer.headers, Date.now()),
  });
}

/** A trailer's error: the server failed while it sent the body. */
export function trailerError(
  action: string,
  where: string,
  trailers: Readonly<Record<string, string>>,
): RetryableError | undefined {
  const status = trailers['grpc-status'] ?? '0';
  if (status === '0' || status === '') return undefined;
  const said = sampleOf(Buffer.from(trailers['grpc-message'] ?? ''));
  return new RetryableError(
    `Cannot ${action} ${where}: the source broke off and said so behind the answer (status ${sampleOf(Buffer.from(status))}, ${said})`,
    { code: 'SOURCE_ERROR_IN_STREAM', meta: { where, status } },
  );
}

export function errorBodyOf(bytes: Buffer): SourceErrorBody | undefined {
  try {
    return readErrorBody(JSON.parse(bytes.toString('utf8')));
  } catch {
    // Not JSON: a proxy's page. The caller shows a sample of it.
    return undefined;
  }
}

function failure(
  code: FailureCode,
  state: string,
  details: { meta: Record<string, unknown>; cause?: unknown; retryAfterMs?: number | undefined },
): Error {
  const advice = ADVICE[code];
  const message = advice === undefined ? state : `${state}; ${advice}`;
  if (code === 'SOURCE_UNREACHABLE') return new UnreachableError(message, { code, ...details });
  if (RETRY_RULES[code] !== undefined) return new RetryableError(message, { code, ...details });
  return new PermanentError(message, { code, meta: details.meta, cause: details.cause });
}

/** undici wraps some errors of the socket, and several addresses tried make an aggregate. */
function errnoOf(error: unknown): string {
  const code = errorCode(error);
  if (code !== 'UNKNOWN' && code !== 'UND_ERR_SOCKET') return code;
  if (error instanceof AggregateError && error.errors.length > 0) return errnoOf(error.errors[0]);
  if (error instanceof Error && error.cause !== undefined) return errnoOf(error.cause);
  return code;
}

/** The origin alone: a proxy may have put secrets into the query. */
function redirectTarget({ location = '' }: IncomingHttpHeaders, where: string): string {
  const target = URL.canParse(location, where) ? new URL(location, where).origin : undefined;
  return target === undefined ? 'nowhere' : `${target}; give that as SOURCE_URL if it is right`;
}
