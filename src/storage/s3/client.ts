/** Builds the S3 client from OBJECT_STORE_URL and the AWS variables. */
import { S3, type S3ClientConfig } from '@aws-sdk/client-s3';
import { UsageError } from '../../errors/errors.ts';
import { openProxiedAgents } from '../../network/proxied-agents.ts';
import { retryOf } from './errors.ts';
import { S3Credentials } from './credentials.ts';

const CONNECT_TIMEOUT_MS = 10_000;
/** How long a connection may be idle in both directions. */
const SOCKET_TIMEOUT_MS = 30_000;
/**
 * Maximum number of attempts per call. The retry strategy limits attempts by time;
 * without a number here, the client would stop after three.
 */
const ATTEMPTS_MAX = 1_000;
/** Self-hosted servers ignore the region, but a signature must include one. */
const REGION_OF_ENDPOINTS = 'us-east-1';
const DELAY_MIN_MS = 100;
const DELAY_MAX_MS = 3_000;
/** Maximum number of attempts for a call whose data is damaged in transit. */
const DAMAGED_ATTEMPTS_MAX = 5;

/** The AWS_… variables. */
type Ambient = Readonly<Partial<Record<string, string>>>;

export interface S3Connection {
  readonly client: S3;
  /**
   * The address of the proxy in front of the store, if there is one, without user and
   * password.
   */
  readonly proxy: string | undefined;
  readonly credentials: S3Credentials;
}

/**
 * Opens the client.
 * @throws UsageError if the endpoint is not a URL
 */
export function openS3Client(
  url: URL,
  ambient: Ambient,
  patienceMs: number,
): S3Connection {
  const endpoint =
    url.searchParams.get('endpoint') ??
    ambient['AWS_ENDPOINT_URL_S3'] ??
    ambient['AWS_ENDPOINT_URL'];
  if (
    endpoint !== undefined &&
    !/^https?:$/.test(URL.parse(endpoint)?.protocol ?? '')
  ) {
    throw new UsageError([
      `OBJECT_STORE_URL: its endpoint "${endpoint}" is not accepted; give an ` +
        'http:// or https:// URL',
    ]);
  }
  const region =
    url.searchParams.get('region') ??
    ambient['AWS_REGION'] ??
    ambient['AWS_DEFAULT_REGION'] ??
    (endpoint === undefined ? undefined : REGION_OF_ENDPOINTS);
  // Most self-hosted stores need path-style URLs, which some clouds refuse.
  const style =
    url.searchParams.get('style') ??
    (endpoint === undefined ? 'virtual' : 'path');
  const agents = openProxiedAgents(
    hostOf(url.host, endpoint, region, style),
    ambient,
  );
  const credentials = new S3Credentials(nameOfCredentials(ambient));
  const client = new S3({
    credentialDefaultProvider: (init) => credentials.provide(init),
    ...(region === undefined ? {} : { region }),
    ...(endpoint === undefined ? {} : { endpoint }),
    forcePathStyle: style === 'path',
    ...credentialsOf(ambient),
    maxAttempts: ATTEMPTS_MAX,
    retryStrategy: waitPatiently(patienceMs),
    // Our store sends and records SHA-256 sums itself, and the SDK's default breaks
    // multipart uploads on some servers.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: {
      connectionTimeout: CONNECT_TIMEOUT_MS,
      socketTimeout: SOCKET_TIMEOUT_MS,
      ...(agents && { httpAgent: agents.http, httpsAgent: agents.https }),
    },
  });
  credentials.watch(client);
  return { client, proxy: agents?.proxy, credentials };
}

/** Returns the host that requests go to, which determines whether a proxy is used. */
function hostOf(
  bucket: string,
  endpoint: string | undefined,
  region: string | undefined,
  style: string,
): URL {
  const at = new URL(
    endpoint ?? `https://s3.${region ?? REGION_OF_ENDPOINTS}.amazonaws.com`,
  );
  if (style === 'virtual') at.hostname = `${bucket}.${at.hostname}`;
  return at;
}

/**
 * Passes on the credentials from `.env`, which are not in the process's environment.
 * Everything else is left to the SDK's own chain.
 */
function credentialsOf(
  ambient: Ambient,
): Pick<S3ClientConfig, 'credentials' | 'profile'> {
  const accessKeyId = ambient['AWS_ACCESS_KEY_ID'];
  const secretAccessKey = ambient['AWS_SECRET_ACCESS_KEY'];
  const sessionToken = ambient['AWS_SESSION_TOKEN'];
  const profile = ambient['AWS_PROFILE'];
  if (accessKeyId === undefined || secretAccessKey === undefined) {
    return profile === undefined ? {} : { profile };
  }
  const session = sessionToken === undefined ? {} : { sessionToken };
  return { credentials: { accessKeyId, secretAccessKey, ...session } };
}

/** Describes to an operator where the credentials come from. */
function nameOfCredentials(ambient: Ambient): string {
  const file = ambient['AWS_SHARED_CREDENTIALS_FILE'];
  if (ambient['AWS_ACCESS_KEY_ID'] !== undefined) return 'AWS_ACCESS_KEY_ID';
  return file === undefined
    ? 'the AWS credentials'
    : `AWS_SHARED_CREDENTIALS_FILE (${file})`;
}

type Strategy = Extract<
  S3ClientConfig['retryStrategy'],
  { refreshRetryTokenForRetry: unknown }
>;
/** Counts the failures of one call. */
type CallToken = Awaited<ReturnType<Strategy['acquireInitialRetryToken']>> & {
  /** When the first failure happened, on the monotonic clock. */
  readonly sinceMs?: number;
};

/**
 * The only layer that retries. The SDK calls it after every failure, and the table of
 * errors decides. It waits up to `patienceMs`, counted from a call's first failure, for a
 * store that is unreachable or busy.
 */
function waitPatiently(patienceMs: number): Strategy {
  return {
    acquireInitialRetryToken: async () => ({
      getRetryCount: () => 0,
      getRetryDelay: () => 0,
    }),
    async refreshRetryTokenForRetry(
      token: CallToken,
      { error },
    ): Promise<CallToken> {
      const failures = token.getRetryCount() + 1;
      const nowMs = performance.now();
      const { sinceMs = nowMs } = token;
      // The delay doubles, with jitter, so that workers do not retry in lockstep.
      const fullMs = Math.min(
        DELAY_MAX_MS,
        DELAY_MIN_MS * 2 ** Math.min(failures, 16),
      );
      const delayMs = fullMs * (0.5 + Math.random() / 2);
      const retry = retryOf(error);
      const isWorthIt =
        retry === 'wait'
          ? nowMs + delayMs - sinceMs <= patienceMs
          : retry === 'few' && failures < DAMAGED_ATTEMPTS_MAX;
      if (!isWorthIt) throw new Error('not tried again');
      return {
        getRetryCount: () => failures,
        getRetryDelay: () => delayMs,
        sinceMs,
      };
    },
    // Calls share no state.
    recordSuccess: () => undefined,
  };
}
