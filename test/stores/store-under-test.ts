/** Stores on a real server, each below a prefix of its own. */
import { randomUUID } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PutObjectCommand } from '@aws-sdk/client-s3';
import type { ObjectStore } from '../../src/storage/object-store.ts';
import { openS3Store } from '../../src/storage/s3/s3-store.ts';
import {
  awsVariables,
  type Keys,
  rawClient,
  type RealStore,
  storeUrl,
} from '../support/stores/real-store.ts';

/** The server, which runs when the tests do. */
export type StoreUnderTest = () => RealStore;

export interface OpenOptions {
  readonly keys?: Keys;
  /** The AWS variables; by default those of the keys. */
  readonly ambient?: Readonly<Record<string, string>>;
  readonly prefix?: string;
  readonly patienceMs?: number;
  /** Another address of the same server: a proxy before it. */
  readonly endpoint?: string;
}

const LANES = 8;

/** Past the mirror: one request a key. */
export async function fillStore(
  server: RealStore,
  store: ObjectStore,
  keys: readonly string[],
): Promise<void> {
  const client = rawClient(server);
  const prefix = new URL(store.url).pathname.slice(1);
  const left = [...keys];
  const lane = async (): Promise<void> => {
    for (let key = left.pop(); key !== undefined; key = left.pop()) {
      const target = { Bucket: server.bucket, Key: `${prefix}/${key}` };
      await client.send(new PutObjectCommand({ ...target, Body: key }));
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  client.destroy();
}

export function openStoreOn(
  server: RealStore,
  options: OpenOptions = {},
): ObjectStore {
  const {
    keys = server.keys,
    prefix = randomUUID(),
    patienceMs,
    endpoint = server.endpoint,
    ambient = awsVariables(keys),
  } = options;
  return openS3Store({
    url: storeUrl({ bucket: server.bucket, endpoint }, prefix),
    spoolDir: join(tmpdir(), 'ledger-mirror-stores', randomUUID()),
    ambient,
    patienceMs,
  });
}
