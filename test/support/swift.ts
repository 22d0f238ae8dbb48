/**
 * OpenStack Swift with its S3 interface: proxy, account, container and object server, one replica, on
 * loopback, in a folder of its own, by any user.
 */
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { CreateBucketCommand, PutBucketAclCommand } from '@aws-sdk/client-s3';
import { unpackDebian, unpackedEnv } from './debian-packages.ts';
import { Child } from './process.ts';
import { freePorts, type Keys, newKeys, rawClient, type RealStore } from './real-store.ts';
import { waitFor } from './wait-for.ts';

const run = promisify(execFile);
const PACKAGES = ['swift-proxy', 'swift-account', 'swift-container', 'swift-object', 'python3-swift'];
const TOOL_TIMEOUT_MS = 60_000;
const START_TIMEOUT_MS = 180_000;
/** Beside the proxy; each has a ring of its own. */
const SERVERS = ['account', 'container', 'object'] as const;
/** s3api names a user `account:user`. */
const USER_PREFIX = 'mirror:';

/** 2.30 answers 501 to the condition on a PUT; in parts it looks before it writes. */
export const SWIFT_CAPABILITIES = { put: 'refused', multipart: 'honoured', hasOneWinner: false } as const;

export async function startSwift(): Promise<RealStore> {
  const swift = new Swift(await unpackDebian('swift', PACKAGES), await mkdtemp(join(tmpdir(), 'lm-swift-')));
  try {
    await swift.start();
    return swift;
  } catch (error) {
    await swift[Symbol.asyncDispose]();
    throw error;
  }
}

class Swift implements RealStore {
  readonly name = 'Swift';
  readonly bucket = 'mirror';
  readonly keys = ofUser(newKeys('main'));
  readonly readOnlyKeys = ofUser(newKeys('reader'));
  readonly #root: string;
  readonly #dir: string;
  readonly #children: Child[] = [];
  #env: Record<string, string> = {};
  #proxy: Child | undefined;
  #port = 0;

  constructor(root: string, dir: string) {
    this.#root = root;
    this.#dir = dir;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async start(): Promise<void> {
    this.#env = await unpackedEnv(this.#root);
    for (const folder of ['srv/d0', 'log']) await mkdir(join(this.#dir, folder), { recursive: true });
    const [proxyPort = 0, ...ports] = await freePorts(1 + SERVERS.length);
    this.#port = proxyPort;
    await this.#write('swift.conf', SWIFT_CONF);
    for (const [index, name] of SERVERS.entries()) await this.#makeServer(name, ports[index] ?? 0);
    await this.#write('proxy-server.conf', this.#proxyConfig());
    for (const name of SERVERS) this.#daemon(name);
    await this.startGateway();
    const client = rawClient(this);
    await client.send(new CreateBucketCommand({ Bucket: this.bucket }));
    // s3api knows no policies: what everybody may read, the second user may read.
    await client.send(new PutBucketAclCommand({ Bucket: this.bucket, ACL: 'public-read' }));
    client.destroy();
  }

  async killGateway(): Promise<void> {
    await this.#proxy?.end('SIGKILL');
  }

  async startGateway(): Promise<void> {
    const proxy = this.#daemon('proxy');
    this.#proxy = proxy;
    await waitFor(
      async () => {
        if (!proxy.isRunning) throw new Error(`the proxy has ended:\n${proxy.stdout}\n${proxy.stderr}`);
        const answer = await fetch(`${this.endpoint}/healthcheck`).catch(() => undefined);
        await answer?.body?.cancel();
        return answer?.ok;
      },
      { timeoutMs: START_TIMEOUT_MS, what: 'an answer of the Swift proxy' },
    );
  }

  freezeGateway(): void {
    this.#proxy?.signal('SIGSTOP');
  }

  thawGateway(): void {
    this.#proxy?.signal('SIGCONT');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children.toReversed()) await child[Symbol.asyncDispose]();
    await rm(this.#dir, { recursive: true, force: true });
  }

  async #makeServer(name: (typeof SERVERS)[number], port: number): Promise<void> {
    const builder = join(this.#dir, `${name}.builder`);
    const ring = async (...args: string[]): Promise<void> => {
      await run(join(this.#root, 'usr', 'bin', 'swift-ring-builder'), [builder, ...args], {
        env: { ...process.env, ...this.#env },
        timeout: TOOL_TIMEOUT_MS,
      });
    };
    await ring('create', '6', '1', '0');
    await ring('add', `r1z1-127.0.0.1:${port}/d0`, '1');
    await ring('rebalance');
    await this.#write(
      `${name}-server.conf`,
      `${this.#defaults(port)}devices = ${join(this.#dir, 'srv')}
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
swift_dir = ${this.#dir}
log_address = ${join(this.#dir, 'log', 'none')}
`;
  }

  #proxyConfig(): string {
    const users = [
      `user_mirror_main = ${this.keys.secretAccessKey} .admin`,
      `user_mirror_reader = ${this.readOnlyKeys.secretAccessKey}`,
    ];
    return `${this.#defaults(this.#port)}[pipeline:main]
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
    await writeFile(join(this.#dir, name), text);
  }

  #daemon(name: (typeof SERVERS)[number] | 'proxy'): Child {
    const script = join(this.#root, 'usr', 'bin', `swift-${name}-server`);
    const config = join(this.#dir, `${name}-server.conf`);
    const child = new Child('/usr/bin/python3', ['-c', LAUNCHER, this.#dir, script, config], {
      cwd: this.#dir,
      env: this.#env,
    });
    this.#children.push(child);
    return child;
  }
}

/** The servers look for swift.conf in /etc before they read where theirs lies. */
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
  return { accessKeyId: accessKeyId.replace('test-', USER_PREFIX), secretAccessKey };
}
