/** The S3 client that OBJECT_STORE_URL and the AWS variables describe. */
import { S3, type S3ClientConfig } from '@aws-sdk/client-s3';
import { UsageError } from '../../errors/errors.ts';
import { retryOf } from './errors.ts';

const CONNECT_TIMEOUT_MS = 10_000;
/** Without a byte in either direction. */
const SOCKET_TIMEOUT_MS = 30_000;
/** Patience decides; without a number the client would stop at three attempts. */
const ATTEMPTS_MAX = 1_000;
/** Self-hosted servers ignore the region, but a signature has to name one. */
const REGION_OF_ENDPOINTS = 'us-east-1';
const DELAY_MIN_MS = 100;
const DELAY_MAX_MS = 3_000;
/** Attempts after data was damaged in transit. */
const FEW = 5;

type Ambient = Readonly<Partial<Record<string, string>>>;

/** @throws UsageError where the endpoint is no URL */
export function openS3Client(url: URL, ambient: Ambient, patienceMs: number): S3 {
  const endpoint =
    url.searchParams.get('endpoint') ??
    ambient['AWS_ENDPOINT_URL_S3'] ??
    ambient['AWS_ENDPOINT_URL'];
  if (endpoint !== undefined && !/^https?:$/.test(URL.parse(endpoint)?.protocol ?? '')) {
    throw new UsageError([
      `OBJECT_STORE_URL: its endpoint "${endpoint}" is not accepted; give an http:// or https:// URL`,
    ]);
  }
  const region =
    url.searchParams.get('region') ??
    ambient['AWS_REGION'] ??
    ambient['AWS_DEFAULT_REGION'] ??
    (endpoint && REGION_OF_ENDPOINTS);
  return new S3({
    ...(region === undefined ? {} : { region }),
    // Self-hosted stores need path-style URLs.
    ...(endpoint === undefined ? {} : { endpoint, forcePathStyle: true }),
    ...credentialsOf(ambient),
    maxAttempts: ATTEMPTS_MAX,
    retryStrategy: waitPatiently(patienceMs),
    // SHA-256 is sent and kept by us; the SDK's default breaks multipart uploads on some stores.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: {
      connectionTimeout: CONNECT_TIMEOUT_MS,
      socketTimeout: SOCKET_TIMEOUT_MS,
    },
  });
}

/** What `.env` gave is not in the process's environment; all else is the SDK's own chain. */
function credentialsOf(
  ambient: Ambient,
): Pick<S3ClientConfig, 'credentials' | 'profile'> {
  const accessKeyId = ambient['AWS_ACCESS_KEY_ID'];
  const secretAccessKey = ambient['AWS_SECRET_ACCESS_KEY'];
  const { AWS_SESSION_TOKEN: sessionToken, AWS_PROFILE: profile } = ambient;
  if (accessKeyId === undefined || secretAccessKey === undefined) {
    return profile === undefined ? {} : { profile };
  }
  const session = sessionToken === undefined ? {} : { sessionToken };
  return { credentials: { accessKeyId, secretAccessKey, ...session } };
}

type Strategy = Extract<
  S3ClientConfig['retryStrategy'],
  { refreshRetryTokenForRetry: unknown }
>;
/** One call's failures so far, the first of them on the monotonic clock. */
type CallToken = Awaited<ReturnType<Strategy['acquireInitialRetryToken']>> & {
  readonly sinceMs?: number;
};

/**
 * The one retry layer: the SDK asks it after every failure, and the table of errors decides. It waits for a
 * store that is away or busy as long as `patienceMs`, from a call's first failure on.
 */
function waitPatiently(patienceMs: number): Strategy {
  return {
    acquireInitialRetryToken: async () => ({
      getRetryCount: () => 0,
      getRetryDelay: () => 0,
    }),
    async refreshRetryTokenForRetry(token: CallToken, { error }): Promise<CallToken> {
      const failures = token.getRetryCount() + 1;
      const nowMs = performance.now();
      const { sinceMs = nowMs } = token;
      // Doubling with jitter, so that workers do not retry together.
      const fullMs = Math.min(DELAY_MAX_MS, DELAY_MIN_MS * 2 ** Math.min(failures, 16));
      const delayMs = fullMs * (0.5 + Math.random() / 2);
      const retry = retryOf(error);
      const isWorthIt =
        retry === 'wait'
          ? nowMs + delayMs - sinceMs <= patienceMs
          : retry === 'few' && failures < FEW;
      if (!isWorthIt) throw new Error('not tried again');
      return { getRetryCount: () => failures, getRetryDelay: () => delayMs, sinceMs };
    },
    // Nothing is shared between calls.
    recordSuccess: () => undefined,
  };
}
