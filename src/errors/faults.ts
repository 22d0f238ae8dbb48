/** What a failure means: to the connection that it broke, and to the work that met it. */
import { errorCode, FencedError, UnreachableError } from './errors.ts';

/** What an errno of the network says, whoever was called. */
export type NetworkFault = 'unreachable' | 'certificate';

const UNREACHABLE_ERRNO =
  /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN)$/;
/** OpenSSL's, and Node's own for a name that does not match. */
const CERTIFICATE_ERRNO = /(?:^|_)CERT(?:_|$)|^UNABLE_TO_VERIFY_LEAF_SIGNATURE$/;

/** undefined for what says neither. */
export function classifyErrno(errno: string): NetworkFault | undefined {
  if (UNREACHABLE_ERRNO.test(errno)) return 'unreachable';
  return CERTIFICATE_ERRNO.test(errno) ? 'certificate' : undefined;
}

export type DatabaseFault = 'unreachable' | 'retryable' | 'permanent';

const UNREACHABLE_SQLSTATE = /^(?:57P0[1-5]|08...|53300)$/;
/** What may pass in a new transaction. */
const RETRYABLE_SQLSTATE = /^(?:40001|40P01|55P03|57014|53...|25P02|25P03|25006)$/;
/** ENOENT: the socket of a server that is stopped. */
const LOST_ERRNO = new Set(['ECONNRESET', 'EPIPE', 'ENOENT']);

/** The one table from SQLSTATE or errno to whether, and how, work goes on. */
export function classifyDatabaseCode(code: string): DatabaseFault {
  const isUnreachable =
    UNREACHABLE_SQLSTATE.test(code) ||
    LOST_ERRNO.has(code) ||
    classifyErrno(code) === 'unreachable';
  if (isUnreachable) return 'unreachable';
  return RETRYABLE_SQLSTATE.test(code) ? 'retryable' : 'permanent';
}

/**
 * `export`: of this ledger alone, and counted against it. `source`, `mirror`: every other export would meet it too;
 * three in a row from different parties end the exports of a nightly run. `nobody`: others were in the way.
 */
export type Fault = 'export' | 'source' | 'mirror' | 'nobody';

const NOBODYS =
  /^(?:FENCED|WAITED_TOO_LONG|LEASE_LOST|COVERAGE_CHANGED|OBJECT_CLEARED|SEGMENT_UNREADABLE)$/;
const OF_THE_SOURCE =
  /^(?:ASSET_REQUIRED|SOURCE_(?:UNREACHABLE|BUSY|RATE_LIMITED|BANNED|CLOSED|CERTIFICATE|UNAUTHORIZED|FORBIDDEN|REDIRECT|ABSENT))$/;
const OF_THE_MIRROR = /^(?:DATABASE_|SPOOL_|OBJECT_|S3_|STATE_|ROW_THREAD_LOST|STORE_)/;

export function attributeFault(error: unknown): Fault {
  const code = errorCode(error);
  if (error instanceof FencedError || NOBODYS.test(code)) return 'nobody';
  if (OF_THE_MIRROR.test(code)) return 'mirror';
  return error instanceof UnreachableError || OF_THE_SOURCE.test(code)
    ? 'source'
    : 'export';
}
