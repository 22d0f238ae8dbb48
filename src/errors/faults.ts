/**
 * Classifies failures in one module: what a failure means for the broken connection,
 * for the work in which it happened, and for whether that work waits until a service is
 * back.
 */
import {
  errorCode,
  FencedError,
  RetryableError,
  UnreachableError,
} from './errors.ts';

/** The meaning of a network errno, the same for every service that is called. */
export type NetworkFault = 'unreachable' | 'certificate';

const UNREACHABLE_ERRNO =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN)$/;
/** The names that OpenSSL uses, and Node's own for a host name that does not match. */
const CERTIFICATE_ERRNO =
  /(?:^|_)CERT(?:_|$)|^UNABLE_TO_VERIFY_LEAF_SIGNATURE$/;

/** Classifies a network errno. @returns undefined if it is neither kind of fault */
export function classifyErrno(errno: string): NetworkFault | undefined {
  if (UNREACHABLE_ERRNO.test(errno)) return 'unreachable';
  return CERTIFICATE_ERRNO.test(errno) ? 'certificate' : undefined;
}

export type DatabaseFault = 'unreachable' | 'retryable' | 'permanent';

const UNREACHABLE_SQLSTATE = /^(?:57P0[1-5]|08...|53300)$/;
/** SQLSTATEs of failures that may not happen again in a new transaction. */
const RETRYABLE_SQLSTATE =
  /^(?:40001|40P01|55P03|57014|53...|25P02|25P03|25006)$/;
/**
 * Codes of a lost connection. ENOENT: the server's Unix socket is missing, because the
 * server is stopped.
 */
const LOST_ERRNO = new Set(['ECONNRESET', 'EPIPE', 'ENOENT']);

/** Decides, by SQLSTATE or errno, whether a statement can be tried again. */
export function classifyDatabaseCode(code: string): DatabaseFault {
  const isUnreachable =
    UNREACHABLE_SQLSTATE.test(code) ||
    LOST_ERRNO.has(code) ||
    classifyErrno(code) === 'unreachable';
  if (isUnreachable) return 'unreachable';
  return RETRYABLE_SQLSTATE.test(code) ? 'retryable' : 'permanent';
}

/**
 * Codes of failures after which the source may be unreachable for a while, whatever it
 * answered.
 */
const SOURCE_AWAY_CODES: ReadonlySet<string> = new Set([
  'SOURCE_UNREACHABLE',
  'SOURCE_BUSY',
  'SOURCE_RATE_LIMITED',
  'SOURCE_BANNED',
]);

/**
 * Codes of a connection that broke while it was in use. HPE_INVALID_EOF_STATE means
 * that it ended in the middle of an HTTP message.
 */
const RESET_ERRNO: ReadonlySet<unknown> = new Set([
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'UND_ERR_SOCKET',
  'HPE_INVALID_EOF_STATE',
]);

/**
 * Whether a failure looks as if the source were away: no connection, a front that
 * answers 502, 503 or 504 in its place, a proxy that cannot reach it, a list request
 * that gets no answer, a source that refuses all requests for now (429, a ban), or a
 * connection that breaks during an answer, as happens when a balancer or the source
 * itself restarts.
 *
 * Such a failure shows nothing about the ledger or the page that was requested, so a
 * nightly run waits for the source and then continues. If a small request succeeds at
 * the same time, the source is reachable, and the failure may still be due to the one
 * large request.
 */
export function isSourceAway(error: unknown): boolean {
  if (!(error instanceof RetryableError)) return false;
  const { code, meta } = error;
  if (SOURCE_AWAY_CODES.has(code)) return true;
  // A proxy that gave up waiting sends a page of its own; the source's own 504 carries
  // the source's error code.
  if (code === 'SOURCE_STATUS')
    return meta['status'] === 504 && !('code' in meta);
  if (code === 'SOURCE_STALLED') return meta['isSilent'] === true;
  // Any other broken answer is itself damaged: truncated gzip, or half a message.
  return code === 'SOURCE_BROKE' && RESET_ERRNO.has(meta['errno']);
}

const REFUSAL_CODES: ReadonlySet<string> = new Set([
  'SOURCE_ABSENT',
  'SOURCE_FORBIDDEN',
]);

/**
 * Whether the source was reachable and refused this single request: 403 or 404 without
 * an error code of its own. If it answers other requests at the same time, the refusal
 * concerns this ledger alone; if it refuses all of them, a path or a permission is
 * wrong.
 */
export function isRefusal(error: unknown): boolean {
  return REFUSAL_CODES.has(errorCode(error));
}

const STORE_CODES = /^OBJECT_STORE_/;

/**
 * Whether the object store failed to serve a call. A missing or damaged object is not
 * such a failure.
 *
 * A refusal, an expired credential, an archived object, a missing permission or an
 * outage shows nothing about the object itself. Only an object that is proven missing,
 * damaged or different is evidence against its segment. Readers of objects check this
 * before they distrust or quarantine a segment, because the next run downloads a
 * quarantined segment again.
 */
export function isStoreFault(error: unknown): boolean {
  return STORE_CODES.test(errorCode(error));
}

/**
 * Where the fault for a failure lies.
 *
 * - `export`: in this ledger alone; the failure counts against it.
 * - `source`, `mirror`: every other export would meet the failure too. Three in a row
 *   from different parties end the exports of a nightly run.
 * - `nobody`: in a conflict with another worker; the work is repeated, and nothing is
 *   counted.
 */
export type Fault = 'export' | 'source' | 'mirror' | 'nobody';

const NOBODY_CODES =
  /^(?:FENCED|WAITED_TOO_LONG|LEASE_LOST|COVERAGE_CHANGED|OBJECT_CLEARED|SEGMENT_UNREADABLE)$/;
const SOURCE_CODES =
  /^(?:ASSET_REQUIRED|PROXY_REFUSED|SOURCE_(?:UNREACHABLE|BEHIND|BUSY|RATE_LIMITED|BANNED|CLOSED|CERTIFICATE|UNAUTHORIZED|FORBIDDEN|REDIRECT|ABSENT))$/;
const MIRROR_CODES =
  /^(?:DATABASE_|SPOOL_|OBJECT_|S3_|STATE_|ROW_THREAD_LOST|STORE_)/;

/** Decides where the fault for an export's error lies. */
export function attributeFault(error: unknown): Fault {
  const code = errorCode(error);
  if (error instanceof FencedError || NOBODY_CODES.test(code)) return 'nobody';
  if (MIRROR_CODES.test(code)) return 'mirror';
  const isOfSource =
    error instanceof UnreachableError ||
    SOURCE_CODES.test(code) ||
    isSourceAway(error);
  return isOfSource ? 'source' : 'export';
}
