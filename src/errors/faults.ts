/**
 * The one place where failures are classified: what a failure means for the connection
 * and for the work that failed, and whether that work waits until a service is back.
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
/** OpenSSL's error codes, and Node's own code for a host name mismatch. */
const CERTIFICATE_ERRNO =
  /(?:^|_)CERT(?:_|$)|^UNABLE_TO_VERIFY_LEAF_SIGNATURE$/;

/** Classifies a network errno. Returns undefined if it means neither kind of fault. */
export function classifyErrno(errno: string): NetworkFault | undefined {
  if (UNREACHABLE_ERRNO.test(errno)) return 'unreachable';
  return CERTIFICATE_ERRNO.test(errno) ? 'certificate' : undefined;
}

export type DatabaseFault = 'unreachable' | 'retryable' | 'permanent';

const UNREACHABLE_SQLSTATE = /^(?:57P0[1-5]|08...|53300)$/;
/** SQLSTATEs of failures that may not recur in a new transaction. */
const RETRYABLE_SQLSTATE =
  /^(?:40001|40P01|55P03|57014|53...|25P02|25P03|25006)$/;
const CONFLICT_SQLSTATE = /^(?:40001|40P01)$/;
/**
 * Codes of a lost connection. ENOENT means that the server's Unix socket is missing,
 * because the server is stopped.
 */
const LOST_ERRNO = new Set(['ECONNRESET', 'EPIPE', 'ENOENT']);

/** Decides, by SQLSTATE or errno, whether a statement can be retried. */
export function classifyDatabaseCode(code: string): DatabaseFault {
  const isUnreachable =
    UNREACHABLE_SQLSTATE.test(code) ||
    LOST_ERRNO.has(code) ||
    classifyErrno(code) === 'unreachable';
  if (isUnreachable) return 'unreachable';
  return RETRYABLE_SQLSTATE.test(code) ? 'retryable' : 'permanent';
}

/**
 * Whether the server rolled a transaction back in favour of a concurrent one, as the
 * victim of a deadlock. The same transaction succeeds when it is repeated.
 */
export function isConflict(code: string): boolean {
  return CONFLICT_SQLSTATE.test(code);
}

/**
 * Codes of failures after which the source may be unavailable for a while, whatever its
 * response was.
 */
const SOURCE_AWAY_CODES: ReadonlySet<string> = new Set([
  'SOURCE_UNREACHABLE',
  'SOURCE_BUSY',
  'SOURCE_RATE_LIMITED',
  'SOURCE_BANNED',
]);

/**
 * Codes of connections that broke while in use. HPE_INVALID_EOF_STATE means that the
 * connection ended in the middle of an HTTP message.
 */
const RESET_ERRNO: ReadonlySet<unknown> = new Set([
  'ECONNRESET',
  'ECONNABORTED',
  'EPIPE',
  'UND_ERR_SOCKET',
  'HPE_INVALID_EOF_STATE',
]);

/**
 * Whether a failure suggests that the source is unavailable:
 * - the source cannot be connected to, or a proxy cannot reach it
 * - a gateway responds with 502, 503 or 504 in its place
 * - a list request gets no response
 * - the source refuses all requests for now (429, a ban)
 * - a connection breaks during a response, as happens when a load balancer or the source
 *   itself restarts
 *
 * Such a failure says nothing about the requested ledger or page, so a nightly run waits
 * for the source and then continues. If a small request succeeds at the same time, the
 * source is reachable, and the failure may be due to this one large request.
 */
export function isSourceAway(error: unknown): boolean {
  if (!(error instanceof RetryableError)) return false;
  const { code, meta } = error;
  if (SOURCE_AWAY_CODES.has(code)) return true;
  // A 504 without an error code is the error page of a proxy that timed out while it
  // waited for the source. The source's own 504 carries an error code.
  if (code === 'SOURCE_STATUS')
    return meta['status'] === 504 && !('code' in meta);
  if (code === 'SOURCE_STALLED') return meta['isSilent'] === true;
  // Otherwise the response itself is damaged, such as truncated gzip or half a message.
  return code === 'SOURCE_BROKE' && RESET_ERRNO.has(meta['errno']);
}

const REFUSAL_CODES: ReadonlySet<string> = new Set([
  'SOURCE_ABSENT',
  'SOURCE_FORBIDDEN',
]);

/**
 * Whether the source was reachable and refused this one request: 403 or 404 without a
 * source error code. If it serves other requests at the same time, the refusal concerns
 * only this ledger; if it refuses all of them, a path or a permission is wrong.
 */
export function isRefusal(error: unknown): boolean {
  return REFUSAL_CODES.has(errorCode(error));
}

const STORE_CODES = /^OBJECT_STORE_/;

/**
 * Whether the object store failed to serve a call. A missing or damaged object is not
 * such a failure.
 *
 * A refusal, an expired credential, an archived object, a missing permission or an outage
 * says nothing about the object itself. Only an object that is proven missing, damaged or
 * different is evidence against its segment. Code that reads objects checks this before
 * it distrusts or quarantines a segment, because the next run downloads a quarantined
 * segment again.
 */
export function isStoreFault(error: unknown): boolean {
  return STORE_CODES.test(errorCode(error));
}

/**
 * What is to blame for a failure.
 *
 * - `export`: only this ledger; the failure counts against it.
 * - `source`, `mirror`: something that would make every other export fail too. Three
 *   consecutive failures of different parties end the exports of a nightly run.
 * - `nobody`: a conflict with another worker; the work is repeated, and nothing is
 *   counted.
 */
export type Fault = 'export' | 'source' | 'mirror' | 'nobody';

const NOBODY_CODES =
  /^(?:FENCED|WAITED_TOO_LONG|LEASE_LOST|COVERAGE_CHANGED|OBJECT_CLEARED|SEGMENT_UNREADABLE)$/;
const SOURCE_CODES =
  /^(?:ASSET_REQUIRED|PROXY_REFUSED|SOURCE_(?:UNREACHABLE|BEHIND|BUSY|RATE_LIMITED|BANNED|CLOSED|CERTIFICATE|UNAUTHORIZED|FORBIDDEN|REDIRECT|ABSENT))$/;
const MIRROR_CODES =
  /^(?:DATABASE_|SPOOL_|OBJECT_|S3_|STATE_|ROW_THREAD_LOST|STORE_)/;

/** Decides what is to blame for an export's error. */
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
