/**
 * What each error from S3, or from the connection to it, means: whether the call is
 * retried, and what the operator can do.
 */
import { S3ServiceException } from '@aws-sdk/client-s3';
import {
  errorCode,
  PermanentError,
  RetryableError,
  UnreachableError,
} from '../../errors/errors.ts';
import { classifyErrno } from '../../errors/faults.ts';
import { refusedTunnel } from '../../network/proxied-agents.ts';

/**
 * What to do after an error.
 * - `wait`: retry the call until the store's `patienceMs` is used up
 * - `few`: retry it a few times, because more would not help
 * - `anew`: the call cannot be retried, but the whole job can
 * - `never`: the call fails until an operator changes something
 */
export type Retry = 'wait' | 'few' | 'anew' | 'never';

interface Meaning {
  readonly code: string;
  readonly retry: Retry;
  /** The end of the message, which tells the operator what to do. */
  readonly advice: string;
}

const AWAY: Meaning = {
  code: 'OBJECT_STORE_UNREACHABLE',
  retry: 'wait',
  advice:
    'the object store cannot be reached; check its endpoint and the network',
};
const BUSY: Meaning = {
  code: 'OBJECT_STORE_BUSY',
  retry: 'wait',
  advice: 'it is tried again',
};
const DAMAGED: Meaning = {
  code: 'OBJECT_STORE_DAMAGED',
  retry: 'few',
  advice:
    'the bytes were damaged on the way; check the network and what is on ' +
    'the way',
};
const UPLOAD_LOST: Meaning = { ...BUSY, retry: 'anew' };
const CLOCK: Meaning = {
  code: 'OBJECT_STORE_REFUSED',
  retry: 'few',
  advice: "this machine's clock differs from the store's; set it by NTP",
};
const CERTIFICATE = never(
  'OBJECT_STORE_CERTIFICATE',
  'give its certificate authority in NODE_EXTRA_CA_CERTS, or an endpoint with the ' +
    'right name',
);
const CREDENTIALS = never(
  'OBJECT_STORE_CREDENTIALS',
  'check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile: they may be ' +
    'missing, wrong or no longer valid',
);
const REFUSED = never(
  'OBJECT_STORE_REFUSED',
  'check the bucket, its region and the permissions (docs/objects.md ' +
    'lists those that are needed); a bucket that requires encryption needs ' +
    'sse=aws:kms in OBJECT_STORE_URL',
);
const KMS_KEY = never(
  'OBJECT_STORE_REFUSED',
  'the KMS key that encrypts the objects is disabled, missing or not ' +
    'available to these credentials; check kms-key in OBJECT_STORE_URL, ' +
    'and the key itself',
);
const VIRTUAL_HOSTED = never(
  'OBJECT_STORE_CONFIGURATION',
  'this store accepts the bucket only in the host name; OBJECT_STORE_URL ' +
    'needs style=virtual',
);
const PROXY = never(
  'OBJECT_STORE_REFUSED',
  'a proxy on the way to the object store refuses the request; check the ' +
    'user and password in HTTPS_PROXY or HTTP_PROXY, what the proxy lets ' +
    'through, and NO_PROXY',
);
const PROXY_AWAY: Meaning = {
  ...AWAY,
  advice:
    'a proxy on the way cannot reach the object store; check its endpoint, and ' +
    'HTTPS_PROXY and NO_PROXY',
};
const FOREIGN_PAGE = never(
  'OBJECT_STORE_REFUSED',
  'the response is not from S3: check the endpoint, and what a proxy on ' +
    'the way lets through (HTTPS_PROXY, HTTP_PROXY, NO_PROXY)',
);
const ARCHIVED = never(
  'OBJECT_STORE_ARCHIVED',
  'a lifecycle rule moved the object to an archive; restore it, and exclude this ' +
    'prefix from the rule',
);
const PROTOCOL = never(
  'OBJECT_STORE_CONFIGURATION',
  'the server there does not speak this protocol; check whether the ' +
    'endpoint is http or https, and its port',
);
const CONFIGURATION = never(
  'OBJECT_STORE_CONFIGURATION',
  'check OBJECT_STORE_URL and the AWS variables',
);

/**
 * The meanings of errors. A pattern matches the name of an SDK error (or S3's own code,
 * if that is more specific), a status or an errno.
 */
const MEANINGS: readonly (readonly [RegExp, Meaning])[] = [
  [/^(?:Credentials|Token)ProviderError$/, CREDENTIALS],
  [
    /^(?:SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken|InvalidToken|TokenRefreshRequired)$/,
    CREDENTIALS,
  ],
  [/^InvalidObjectState$/, ARCHIVED],
  [/^KMS\./, KMS_KEY],
  [/^SecondLevelDomainForbidden$|^PathStyleDomainForbidden$/, VIRTUAL_HOSTED],
  [/^(?:RequestTimeTooSkewed|RequestExpired)$/, CLOCK],
  [
    /^(?:XAmzContentSHA256Mismatch|XAmzContentChecksumMismatch|BadDigest|IncompleteBody)$/,
    DAMAGED,
  ],
  [/^NoSuchUpload$/, UPLOAD_LOST],
  [/^RequestTimeout$/, BUSY],
  [/^TimeoutError$/, AWAY],
  [/^(?:409|429)$/, BUSY],
  [/^407$/, PROXY],
  [/^501$/, REFUSED],
  [
    /^(?:ECONNRESET|ECONNABORTED|EPIPE|ERR_STREAM_PREMATURE_CLOSE|EMFILE|ENFILE)$/,
    BUSY,
  ],
  [/^(?:EPROTO$|HPE_|ERR_SSL_)/, PROTOCOL],
];

function never(code: string, advice: string): Meaning {
  return { code, retry: 'never', advice };
}

function lookUp(text: string | number): Meaning | undefined {
  return MEANINGS.find(([pattern]) => pattern.test(String(text)))?.[1];
}

/**
 * Looks up the name first, as it is the most specific, then the status, then the errno.
 */
function meaningOf(error: unknown): Meaning {
  const tunnel = refusedTunnel(error);
  if (tunnel !== undefined) return tunnel.status >= 500 ? PROXY_AWAY : PROXY;
  const byName = lookUp(nameOf(error));
  if (byName !== undefined) return byName;
  const status = statusOf(error);
  if (status !== undefined) {
    const refused =
      nameOf(error) === 'Unknown' || !(error instanceof S3ServiceException)
        ? FOREIGN_PAGE
        : REFUSED;
    return lookUp(status) ?? (status >= 500 ? BUSY : refused);
  }
  const errno = errorCode(error);
  const fault = classifyErrno(errno);
  if (fault !== undefined) return fault === 'unreachable' ? AWAY : CERTIFICATE;
  // All other errors, such as "Region is missing", are thrown before anything is sent.
  return lookUp(errno) ?? CONFIGURATION;
}

/** Whether the store refused the credentials or none were found. */
export function isCredentialsRefused(error: unknown): boolean {
  return meaningOf(error) === CREDENTIALS;
}

/** Whether the same call may succeed later. */
export function retryOf(error: unknown): Retry {
  return isAbort(error) ? 'never' : meaningOf(error).retry;
}

/**
 * Whether a failed write may have taken effect, in which case looking up the key helps.
 * After a refusal the write did not take effect, and an unreachable store cannot be
 * queried.
 */
export function mayHaveHappened(error: unknown): boolean {
  return (
    isTaken(error) ||
    isConditionUnknown(error) ||
    (retryOf(error) !== 'never' && meaningOf(error) !== AWAY)
  );
}

export function statusOf(error: unknown): number | undefined {
  if (error instanceof S3ServiceException)
    return error.$metadata.httpStatusCode;
  // The response is not XML: it is empty, or a proxy's page.
  const response: unknown =
    error instanceof Error && '$response' in error
      ? error.$response
      : undefined;
  const status: unknown =
    typeof response === 'object' &&
    response !== null &&
    'statusCode' in response
      ? response.statusCode
      : undefined;
  return typeof status === 'number' ? status : undefined;
}

/**
 * Whether the key or the upload is absent. A missing bucket does not count, because it
 * means a wrong setting.
 */
export function isMissing(error: unknown): boolean {
  return (
    statusOf(error) === 404 &&
    !(error instanceof Error && error.name === 'NoSuchBucket')
  );
}

/** Whether the condition failed because the key already exists. */
export function isTaken(error: unknown): boolean {
  return statusOf(error) === 412;
}

/** Whether the store does not support conditional writes. */
export function isConditionUnknown(error: unknown): boolean {
  return statusOf(error) === 501;
}

/**
 * Classifies an error.
 * @param what the action and its key: "publish ledger/…"
 * @param proxy the address of the proxy in front of the store, if there is one
 */
export function s3Error(
  what: string,
  url: string,
  error: unknown,
  proxy?: string,
): Error {
  if (error instanceof PermanentError || error instanceof RetryableError)
    return error;
  if (isAbort(error)) return error;
  const { code, retry, advice } = meaningOf(error);
  const counted =
    error instanceof S3ServiceException ? error.$metadata.attempts : undefined;
  const attempts = counted || 1;
  const details = {
    code,
    cause: error,
    meta: {
      status: statusOf(error),
      name: nameOf(error),
      // Marks that the wait is over, so that other layers do not wait again.
      ...(retry === 'wait' ? { attempts } : {}),
    },
  };
  const state = stateOf(error, proxy);
  const message = `Cannot ${what} in ${url}: ${state}; ${advice}`;
  if (code === AWAY.code) return new UnreachableError(message, details);
  return retry === 'never'
    ? new PermanentError(message, details)
    : new RetryableError(message, details);
}

/** Returns searchable text: the status and S3's own code, or the errno. */
function stateOf(error: unknown, proxy: string | undefined): string {
  const status = refusedTunnel(error)?.status ?? statusOf(error);
  const isOfProxy = [PROXY, PROXY_AWAY, FOREIGN_PAGE].includes(
    meaningOf(error),
  );
  if (isOfProxy && proxy !== undefined)
    return `the proxy ${proxy} answers ${status}`;
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
