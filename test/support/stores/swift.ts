/**
 * OpenStack Swift with its S3 interface: a proxy, an account, a container and an object
 * server with one replica, on loopback, in a folder of its own. Any user can run it.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import {
  CreateBucketCommand,
  PutBucketAclCommand,
  type S3Client,
  S3ServiceException,
} from '@aws-sdk/client-s3';
import type { Child } from '../process.ts';
import { waitFor } from '../wait-for.ts';
import {
  freePorts,
  type Keys,
  newKeys,
  rawClient,
  type RealStore,
} from './real-store.ts';
import { startUnpacked, UnpackedStore } from './unpacked-store.ts';

const PACKAGES = [
  'swift-proxy',
  'swift-account',
  'swift-container',
  'swift-object',
  'python3-swift',
];
/** The servers besides the proxy; each has its own ring. */
const SERVERS = ['account', 'container', 'object'] as const;
/** The prefix of user names: s3api names a user `account:user`. */
const USER_PREFIX = 'mirror:';

/**
 * Version 2.30 answers a conditional PUT with 501. For an upload in parts it checks the
 * condition before it writes, so the check is not atomic.
 */
export const SWIFT_CAPABILITIES = {
  put: 'refused',
  multipart: 'honoured',
  hasOneWinner: false,
} as const;

export function startSwift(): Promise<RealStore> {
  return startUnpacked(
    { name: 'swift', all: PACKAGES },
    (root, dir) => new Swift(root, dir),
  );
}

/**
 * Makes the bucket.
 * @returns false if the store is not ready yet
 */
async function makeBucket(client: S3Client, bucket: string): Promise<boolean> {
  try {
    await client.send(new CreateBucketCommand({ Bucket: bucket }));
    return true;
  } catch (error) {
    if (!(error instanceof S3ServiceException)) throw error;
    // The bucket was created by an earlier call although its answer was a 503.
    if (error.name === 'BucketAlreadyOwnedByYou') return true;
    if (error.$metadata.httpStatusCode === 503) return false;
    throw error;
  }
}

class Swift extends UnpackedStore {
  readonly name = 'Swift';
  override readonly keys = ofUser(newKeys('main'));
  override readonly readOnlyKeys = ofUser(newKeys('reader'));
  protected override readonly healthPath = '/healthcheck';

  async start(): Promise<void> {
    for (const folder of ['srv/d0', 'log'])
      await mkdir(join(this.dir, folder), { recursive: true });
    const [proxyPort = 0, ...ports] = await freePorts(1 + SERVERS.length);
    this.port = proxyPort;
    await this.#write('swift.conf', SWIFT_CONF);
    for (const [index, name] of SERVERS.entries())
      await this.#makeServer(name, ports[index] ?? 0);
    await this.#write('proxy-server.conf', this.#proxyConfig());
    for (const name of SERVERS) this.#server(name);
    await this.startGateway();
    const client = rawClient(this);
    // The proxy is ready before the servers behind it, and answers 503 until they are.
    await waitFor(() => makeBucket(client, this.bucket), {
      what: 'the servers behind the proxy',
    });
    // s3api has no policies, so a public-read ACL gives the second user permission to
    // read.
    await client.send(
      new PutBucketAclCommand({ Bucket: this.bucket, ACL: 'public-read' }),
    );
    client.destroy();
  }

  protected gateway(): Child {
    return this.#server('proxy');
  }

  protected isWell(answer: Response): boolean {
    return answer.ok;
  }

  async #makeServer(
    name: (typeof SERVERS)[number],
    port: number,
  ): Promise<void> {
    const builder = join(this.dir, `${name}.builder`);
    const ring = (...args: string[]): Promise<void> =>
      this.tool('swift-ring-builder', [builder, ...args]);
    await ring('create', '6', '1', '0');
    await ring('add', `r1z1-127.0.0.1:${port}/d0`, '1');
    await ring('rebalance');
    await this.#write(
      `${name}-server.conf`,
      `${this.#defaults(port)}devices = ${join(this.dir, 'srv')}
mount_check = false
disable_fallocate = true
fallocate_reserve = 0
[pipeline:main]
pipeline = ${name}-server
[app:${name}-server]
use = egg:swift#${name}
`,
    );
  }

  #defaults(port: number): string {
    return `[DEFAULT]
bind_ip = 127.0.0.1
bind_port = ${port}
workers = 0
user = ${userInfo().username}
swift_dir = ${this.dir}
log_address = ${join(this.dir, 'log', 'none')}
`;
  }

  #proxyConfig(): string {
    const users = [
      `user_mirror_main = ${this.keys.secretAccessKey} .admin`,
      `user_mirror_reader = ${this.readOnlyKeys.secretAccessKey}`,
    ];
    return `${this.#defaults(this.port)}[pipeline:main]
pipeline = catch_errors gatekeeper healthcheck cache listing_formats bulk s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
allow_multipart_uploads = true
check_bucket_owner = false
dns_compliant_bucket_names = false
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:tempauth]
use = egg:swift#tempauth
${users.join('\n')}
${PLAIN_FILTERS.map((name) => `[filter:${name}]\nuse = egg:swift#${name}\n`).join('')}`;
  }

  async #write(name: string, text: string): Promise<void> {
    await writeFile(join(this.dir, name), text);
  }

  #server(name: (typeof SERVERS)[number] | 'proxy'): Child {
    const config = join(this.dir, `${name}-server.conf`);
    const script = this.program(`swift-${name}-server`);
    return this.daemon('/usr/bin/python3', [
      '-c',
      LAUNCHER,
      this.dir,
      script,
      config,
    ]);
  }
}

/**
 * A launcher that sets the folder of swift.conf before a server starts. Without it, the
 * server looks for the file in /etc before it reads which folder to use.
 */
const LAUNCHER = `import runpy, sys
from swift.common import utils
utils.set_swift_dir(sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name='__main__')
`;
const SWIFT_CONF = `[swift-hash]
swift_hash_path_suffix = ledger
swift_hash_path_prefix = mirror
[storage-policy:0]
name = gold
default = yes
`;
const PLAIN_FILTERS = [
  'catch_errors',
  'gatekeeper',
  'healthcheck',
  'listing_formats',
  'bulk',
  'copy',
  'slo',
  'dlo',
];

function ofUser({ secretAccessKey, accessKeyId }: Keys): Keys {
  return {
    accessKeyId: accessKeyId.replace('test-', USER_PREFIX),
    secretAccessKey,
  };
}
