/** A real S3 server that the tests start, kill and restart. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { S3Client, type S3ClientConfig } from '@aws-sdk/client-s3';

export interface Keys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

export interface RealStore extends AsyncDisposable {
  readonly name: string;
  readonly endpoint: string;
  readonly bucket: string;
  readonly keys: Keys;
  /** Keys that may read the bucket, and do nothing else. */
  readonly readOnlyKeys: Keys;
  /** Kills (with -9) the process that speaks S3; stored objects stay. */
  killGateway(): Promise<void>;
  /** Starts the gateway again on the same port, and waits until it answers. */
  startGateway(): Promise<void>;
  /** Accepts connections without answering, until `thawGateway`. */
  freezeGateway(): void;
  thawGateway(): void;
}

/**
 * Creates keys for a server that lives only as long as the tests, so they are not secret.
 */
export function newKeys(name: string): Keys {
  return {
    accessKeyId: `test-${name}`,
    secretAccessKey: randomBytes(20).toString('hex'),
  };
}

/** Returns the URL of the store as a user would write it. */
export function storeUrl(
  { endpoint, bucket }: Pick<RealStore, 'endpoint' | 'bucket'>,
  prefix: string,
): URL {
  const url = new URL(`s3://${bucket}/${prefix}`);
  url.searchParams.set('endpoint', endpoint);
  return url;
}

export function awsVariables({
  accessKeyId,
  secretAccessKey,
}: Keys): Record<string, string> {
  return {
    AWS_ACCESS_KEY_ID: accessKeyId,
    AWS_SECRET_ACCESS_KEY: secretAccessKey,
  };
}

/** Returns the plain SDK client, for changes that a test makes without the mirror. */
export function rawClient({
  endpoint,
  keys,
}: Pick<RealStore, 'endpoint' | 'keys'>): S3Client {
  const config: S3ClientConfig = {
    endpoint,
    region: 'us-east-1',
    forcePathStyle: true,
    credentials: keys,
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  };
  return new S3Client(config);
}

/**
 * Finds free ports below the range that the system assigns, so that a restarted server
 * finds its own port still free.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports: number[] = [];
  while (ports.length < count) {
    const port = 15_000 + Math.floor(Math.random() * 15_000);
    if (!ports.includes(port) && (await isFree(port))) ports.push(port);
  }
  return ports;
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    return true;
  } catch {
    return false;
  } finally {
    server.close();
  }
}
