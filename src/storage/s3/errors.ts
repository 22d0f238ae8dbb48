/** The one table of what an error of S3, or of the way to it, means: whether to try again, and what to do. */
import { S3ServiceException } from '@aws-sdk/client-s3';
import {
  errorCode,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../../errors/errors.ts';
import { classifyErrno } from '../../errors/faults.ts';

/**
 * `wait`: the same call, for as long as the store's patience lasts. `few`: the same call, a few times; more
 * would not help. `anew`: not this call, but the whole job. `never`: until somebody changes something.
 */
export type Retry = 'wait' | 'few' | 'anew' | 'never';

interface Meaning {
  readonly code: string;
  readonly retry: Retry;
  readonly advice: string;
}

const AWAY: Meaning = {
  code: 'OBJECT_STORE_UNREACHABLE',
  retry: 'wait',
  advice: 'the object store cannot be reached; check its endpoint and the network',
};
const BUSY: Meaning = {
  code: 'OBJECT_STORE_BUSY',
  retry: 'wait',
  advice: 'it is tried again',
};
const DAMAGED: Meaning = {
  code: 'OBJECT_STORE_DAMAGED',
  retry: 'few',
  advice: 'the bytes were damaged on the way; check the network and what lies in between',
};
const UPLOAD_LOST: Meaning = { ...BUSY, retry: 'anew' };
const CLOCK: Meaning = {
  code: 'OBJECT_STORE_REFUSED',
  retry: 'few',
  advice: "this machine's clock differs from the store's; set it by NTP",
};
const CERTIFICATE = never(
  'OBJECT_STORE_CERTIFICATE',
  'give its certificate authority in NODE_EXTRA_CA_CERTS, or an endpoint with the right name',
);
const CREDENTIALS = never(
  'OBJECT_STORE_CREDENTIALS',
  'check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile: they may be missing, wrong or no longer valid',
);
const REFUSED = never(
  'OBJECT_STORE_REFUSED',
  'check the bucket, its region and the rights; docs/objects.md lists those that are needed',
);
const PROTOCOL = never(
  'OBJECT_STORE_CONFIGURATION',
  'what answers there does not speak this protocol; check whether the endpoint is http or https, and its port',
);
const CONFIGURATION = never(
  'OBJECT_STORE_CONFIGURATION',
  'check OBJECT_STORE_URL and the AWS variables',
);

/** By the name of the SDK's error (S3's own code, where its status says less), by status, by errno. */
const MEANINGS: readonly (readonly [RegExp, Meaning])[] = [
  [/^(?:Credentials|Token)ProviderError$/, CREDENTIALS],
  [
    /^(?:SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken|InvalidToken|TokenRefreshRequired)$/,
    CREDENTIALS,
  ],
  [/^(?:RequestTimeTooSkewed|RequestExpired)$/, CLOCK],
  [
    /^(?:XAmzContentSHA256Mismatch|XAmzContentChecksumMismatch|BadDigest|IncompleteBody)$/,
    DAMAGED,
  ],
  [/^NoSuchUpload$/, UPLOAD_LOST],
  [/^RequestTimeout$/, BUSY],
  [/^TimeoutError$/, AWAY],
  [/^(?:409|429)$/, BUSY],
  [/^501$/, REFUSED],
  [/^(?:ECONNRESET|ECONNABORTED|EPIPE|ERR_STREAM_PREMATURE_CLOSE|EMFILE|ENFILE)$/, BUSY],
  [/^(?:EPROTO$|HPE_|ERR_SSL_)/, PROTOCOL],
];

function never(code: string, advice: string): Meaning {
  return { code, retry: 'never', advice };
}

function lookUp(text: string | number): Meaning | undefined {
  return MEANINGS.find(([pattern]) => pattern.test(String(text)))?.[1];
}

/** Name before status before errno: the name is the most exact. */
function meaningOf(error: unknown): Meaning {
  const byName = lookUp(nameOf(error));
  if (byName !== undefined) return byName;
  const status = statusOf(error);
  if (status !== undefined) return lookUp(status) ?? (status >= 500 ? BUSY : REFUSED);
  const errno = errorCode(error);
  const fault = classifyErrno(errno);
  if (fault !== undefined) return fault === 'unreachable' ? AWAY : CERTIFICATE;
  // Thrown before anything was sent: "Region is missing" and its like.
  return lookUp(errno) ?? CONFIGURATION;
}

/** Whether the same call may succeed later. */
export function retryOf(error: unknown): Retry {
  return isAbort(error) ? 'never' : meaningOf(error).retry;
}

/** Of a failed write: it may have happened. A refusal is final, and an unreachable store cannot be asked. */
export function isWorthAsking(error: unknown): boolean {
  return (
    isTaken(error) ||
    isConditionUnknown(error) ||
    (retryOf(error) !== 'never' && meaningOf(error) !== AWAY)
  );
}

export function statusOf(error: unknown): number | undefined {
  if (error instanceof S3ServiceException) return error.$metadata.httpStatusCode;
  // An answer that is no XML: a proxy's page, or nothing at all.
  const response: unknown =
    error instanceof Error && '$response' in error ? error.$response : undefined;
  const status: unknown =
    typeof response === 'object' && response !== null && 'statusCode' in response
      ? response.statusCode
      : undefined;
  return typeof status === 'number' ? status : undefined;
}

/** The key (or the upload, the bucket) is not there. */
export function isMissing(error: unknown): boolean {
  return (
    statusOf(error) === 404 && !(error instanceof Error && error.name === 'NoSuchBucket')
  );
}

/** The condition did not hold: something lies under the key. */
export function isTaken(error: unknown): boolean {
  return statusOf(error) === 412;
}

/** The store does not know conditional writes. */
export function isConditionUnknown(error: unknown): boolean {
  return statusOf(error) === 501;
}

/** @param what was done, and to which key: "publish ledger/…" */
export function s3Error(what: string, url: string, error: unknown): Error {
  if (error instanceof PermanentError || error instanceof RetryableError) return error;
  if (isAbort(error)) return error;
  const { code, retry, advice } = meaningOf(error);
  const attempts = (error instanceof S3ServiceException && error.$metadata.attempts) || 1;
  const details = {
    code,
    cause: error,
    meta: {
      status: statusOf(error),
      name: nameOf(error),
      // Marks that the wait is over: retries do not multiply over layers.
      ...(retry === 'wait' ? { attempts } : {}),
    },
  };
  const message = `Cannot ${what} in ${url}: ${stateOf(error)}; ${advice}`;
  if (code === AWAY.code) return new UnreachableError(message, details);
  return retry === 'never'
    ? new PermanentError(message, details)
    : new RetryableError(message, details);
}

/** The words that can be searched for: status and S3's own code, or the errno. */
function stateOf(error: unknown): string {
  const status = statusOf(error);
  if (status !== undefined) return `${status} ${nameOf(error)}`;
  const errno = errorCode(error);
  if (errno !== 'UNKNOWN' || !(error instanceof Error)) return errno;
  return error.message.split('\n', 1)[0] ?? error.name;
}

function nameOf(error: unknown): string {
  return error instanceof Error ? error.name : 'UNKNOWN';
}

function isAbort(error: unknown): error is Error {
  return error instanceof Error && error.name === 'AbortError';
}
