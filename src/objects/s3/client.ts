/** The S3 client that OBJECT_STORE_URL and the AWS variables describe. */
import { S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';
import { UsageError } from '../../core/errors.ts';
import { PatientRetry } from './retry.ts';

const CONNECT_TIMEOUT_MS = 10_000;
/** Without a byte in either direction. */
const SOCKET_TIMEOUT_MS = 30_000;
/** Patience decides; without a number the client would stop at three attempts. */
const ATTEMPTS_MAX = 1_000;
/** Self-hosted servers ignore the region, but a signature has to name one. */
const REGION_OF_ENDPOINTS = 'us-east-1';

type Ambient = Readonly<Record<string, string>>;

/** @throws UsageError where the endpoint is no URL */
export function openS3Client(url: URL, ambient: Ambient, patienceMs: number): S3Client {
  const endpoint =
    url.searchParams.get('endpoint') ?? ambient['AWS_ENDPOINT_URL_S3'] ?? ambient['AWS_ENDPOINT_URL'];
  if (endpoint !== undefined && !/^https?:$/.test(URL.canParse(endpoint) ? new URL(endpoint).protocol : '')) {
    throw new UsageError([
      `OBJECT_STORE_URL: its endpoint "${endpoint}" is not accepted; give an http:// or https:// URL`,
    ]);
  }
  const region =
    url.searchParams.get('region') ??
    ambient['AWS_REGION'] ??
    ambient['AWS_DEFAULT_REGION'] ??
    (endpoint === undefined ? undefined : REGION_OF_ENDPOINTS);
  return new S3Client({
    ...(region === undefined ? {} : { region }),
    // Self-hosted stores need path-style URLs.
    ...(endpoint === undefined ? {} : { endpoint, forcePathStyle: true }),
    ...credentialsOf(ambient),
    maxAttempts: ATTEMPTS_MAX,
    retryStrategy: new PatientRetry(patienceMs),
    // SHA-256 is sent and kept by us; the SDK's default breaks multipart uploads on some stores.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { connectionTimeout: CONNECT_TIMEOUT_MS, socketTimeout: SOCKET_TIMEOUT_MS },
  });
}

/** What `.env` gave is not in the process's environment; all else is the SDK's own chain. */
function credentialsOf(ambient: Ambient): Pick<S3ClientConfig, 'credentials' | 'profile'> {
  const [accessKeyId, secretAccessKey] = [ambient['AWS_ACCESS_KEY_ID'], ambient['AWS_SECRET_ACCESS_KEY']];
  const sessionToken = ambient['AWS_SESSION_TOKEN'];
  if (accessKeyId !== undefined && secretAccessKey !== undefined) {
    return {
      credentials: { accessKeyId, secretAccessKey, ...(sessionToken === undefined ? {} : { sessionToken }) },
    };
  }
  const profile = ambient['AWS_PROFILE'];
  return profile === undefined ? {} : { profile };
}
