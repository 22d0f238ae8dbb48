/** Whose fault a failure is, and so whom it concerns: one export, everything that asks, or nobody. */
import { errorCode, FencedError, UnreachableError } from './errors.ts';

/**
 * `export`: of this ledger alone, and counted against it. `source`, `mirror`: every other export would meet it too;
 * three in a row from different parties end the exports of a nightly run. `nobody`: others were in the way.
 */
export type Fault = 'export' | 'source' | 'mirror' | 'nobody';

const NOBODYS: ReadonlySet<string> = new Set([
  'FENCED',
  'WAITED_TOO_LONG',
  'LEASE_LOST',
  'COVERAGE_CHANGED',
  'OBJECT_CLEARED',
  'SEGMENT_UNREADABLE',
]);
const OF_THE_SOURCE: ReadonlySet<string> = new Set([
  'ASSET_REQUIRED',
  'SOURCE_UNREACHABLE',
  'SOURCE_BUSY',
  'SOURCE_RATE_LIMITED',
  'SOURCE_BANNED',
  'SOURCE_CLOSED',
  'SOURCE_CERTIFICATE',
  'SOURCE_UNAUTHORIZED',
  'SOURCE_FORBIDDEN',
  'SOURCE_REDIRECT',
  'SOURCE_ABSENT',
]);
const OF_THE_MIRROR = /^(?:DATABASE_|SPOOL_|OBJECT_|S3_|STATE_|ROW_THREAD_LOST|STORE_)/;

export function whoseFault(error: unknown): Fault {
  const code = errorCode(error);
  if (error instanceof FencedError || NOBODYS.has(code)) return 'nobody';
  if (OF_THE_MIRROR.test(code)) return 'mirror';
  return error instanceof UnreachableError || OF_THE_SOURCE.has(code) ? 'source' : 'export';
}
