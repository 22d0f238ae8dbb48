/** A real S3 server that the tests start, kill and start again. */
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
  /** May read the bucket, and nothing else. */
  readonly readOnlyKeys: Keys;
  /** kill -9 of what speaks S3; what is stored stays. */
  killGateway(): Promise<void>;
  /** Starts it again on the same port, and waits until it answers. */
  startGateway(): Promise<void>;
  /** Connections are taken and nothing is said, until `thawGateway`. */
  freezeGateway(): void;
  thawGateway(): void;
}

/** No secret of anybody's: of a server that lives as long as the tests. */
export function newKeys(name: string): Keys {
  return {
    accessKeyId: `test-${name}`,
    secretAccessKey: randomBytes(20).toString('hex'),
  };
}

/** As a user writes it. */
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

/** The SDK alone, for what a test does behind the mirror's back. */
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
 * Below the ports that the system hands out, so that a killed server finds its own free
 * again.
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
