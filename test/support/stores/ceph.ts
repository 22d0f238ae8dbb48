/**
 * Ceph, as small as possible: a monitor, one OSD in memory and a RADOS gateway, on
 * loopback, in a folder of its own. Any user can run it. Everything written is lost when
 * the OSD ends.
 */
import { randomUUID } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  CreateBucketCommand,
  PutBucketPolicyCommand,
} from '@aws-sdk/client-s3';
import { libraryFolder } from './debian-packages.ts';
import type { Child } from '../process.ts';
import {
  freePorts,
  type Keys,
  rawClient,
  type RealStore,
} from './real-store.ts';
import { startUnpacked, UnpackedStore } from './unpacked-store.ts';

const PACKAGES = ['ceph-mon', 'ceph-osd', 'radosgw', 'ceph-common'];
/** The size of the OSD's store. It is in memory, but takes only as much as is written. */
const STORE_BYTES = 6 * 2 ** 30;
/** How many ports to reserve for the OSD, which takes several in a row. */
const OSD_PORTS = 60;

/** Version 16.2 ignores the condition on the last call of an upload in parts. */
export const CEPH_CAPABILITIES = {
  put: 'honoured',
  multipart: 'ignored',
  hasOneWinner: true,
} as const;

export function startCeph(): Promise<RealStore> {
  return startUnpacked(
    { name: 'ceph', all: PACKAGES },
    (root, dir) => new Ceph(root, dir),
  );
}

class Ceph extends UnpackedStore {
  readonly name = 'Ceph';

  async start(): Promise<void> {
    for (const folder of ['mon', 'osd0', 'rgw', 'run', 'log'])
      await mkdir(join(this.dir, folder), { recursive: true });
    this.env['CEPH_CONF'] = join(this.dir, 'ceph.conf');
    const [gatewayPort = 0, monPort = 0, osdPort = 0] = await freePorts(3);
    this.port = gatewayPort;
    const fsid = randomUUID();
    await writeFile(
      join(this.dir, 'ceph.conf'),
      this.#config({ fsid, gatewayPort, monPort, osdPort }),
    );
    await this.#startMonitor(fsid, monPort);
    await this.#startOsd();
    await this.startGateway();
    await this.#addUser('main', this.keys);
    await this.#addUser('reader', this.readOnlyKeys);
    const client = rawClient(this);
    await client.send(new CreateBucketCommand({ Bucket: this.bucket }));
    await client.send(
      new PutBucketPolicyCommand({
        Bucket: this.bucket,
        Policy: readOnly(this.bucket),
      }),
    );
    client.destroy();
  }

  protected gateway(): Child {
    return this.#run('radosgw', ['-n', 'client.rgw', '-f']);
  }

  protected isWell(answer: Response): boolean {
    return answer.status < 500;
  }

  async #startMonitor(fsid: string, port: number): Promise<void> {
    const keyring = join(this.dir, 'keyring');
    const key = (name: string, ...caps: string[]): Promise<unknown> =>
      this.tool('ceph-authtool', [keyring, '--gen-key', '-n', name, ...caps]);
    await this.tool('ceph-authtool', [
      '--create-keyring',
      keyring,
      '--gen-key',
      '-n',
      'mon.',
      '--cap',
      'mon',
      'allow *',
    ]);
    await key(
      'client.admin',
      '--cap',
      'mon',
      'allow *',
      '--cap',
      'osd',
      'allow *',
    );
    await key(
      'osd.0',
      '--cap',
      'mon',
      'allow profile osd',
      '--cap',
      'osd',
      'allow *',
    );
    await key(
      'client.rgw',
      '--cap',
      'mon',
      'allow *',
      '--cap',
      'osd',
      'allow *',
    );
    const map = join(this.dir, 'monmap');
    const address = `[v2:127.0.0.1:${port}]`;
    await this.tool('monmaptool', [
      '--create',
      '--fsid',
      fsid,
      '--addv',
      'a',
      address,
      '--clobber',
      map,
    ]);
    await this.tool('ceph-mon', [
      '-i',
      'a',
      '--mkfs',
      '--monmap',
      map,
      '--keyring',
      keyring,
    ]);
    this.#run('ceph-mon', ['-i', 'a', '-f']);
  }

  async #startOsd(): Promise<void> {
    const id = randomUUID();
    await this.tool('ceph', ['--connect-timeout', '60', 'osd', 'new', id]);
    await this.tool('ceph-osd', ['-i', '0', '--mkfs', '--osd-uuid', id]);
    this.#run('ceph-osd', ['-i', '0', '-f']);
  }

  async #addUser(
    uid: string,
    { accessKeyId, secretAccessKey }: Keys,
  ): Promise<void> {
    const keys = ['--access-key', accessKeyId, '--secret-key', secretAccessKey];
    await this.tool('radosgw-admin', [
      '-n',
      'client.rgw',
      'user',
      'create',
      '--uid',
      uid,
      '--display-name',
      uid,
      ...keys,
    ]);
  }

  #run(name: string, args: readonly string[]): Child {
    return this.daemon(this.program(name), args);
  }

  #config(given: {
    fsid: string;
    gatewayPort: number;
    monPort: number;
    osdPort: number;
  }): string {
    const dir = this.dir;
    const library = join(this.root, 'usr', 'lib', libraryFolder());
    return `[global]
fsid = ${given.fsid}
mon host = [v2:127.0.0.1:${given.monPort}/0]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr1 = false
ms bind port min = ${given.osdPort}
ms bind port max = ${given.osdPort + OSD_PORTS}
keyring = ${dir}/keyring
auth allow insecure global id reclaim = false
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd class dir = ${library}/rados-classes
erasure code dir = ${library}/ceph/erasure-code
plugin dir = ${library}/ceph
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 1
run dir = ${dir}/run
admin socket = ${dir}/run/$name.asok
log file = ${dir}/log/$name.log
crash dir = ${dir}/log
[mon.a]
host = localhost
mon data = ${dir}/mon
[osd.0]
host = localhost
osd data = ${dir}/osd0
osd objectstore = memstore
memstore device bytes = ${STORE_BYTES}
[client.rgw]
host = localhost
rgw frontends = beast endpoint=127.0.0.1:${given.gatewayPort}
rgw data = ${dir}/rgw
rgw thread pool size = 32
`;
  }
}

function readOnly(bucket: string): string {
  return JSON.stringify({
    Version: '2012-10-17',
    Statement: [
      {
        Effect: 'Allow',
        Principal: { AWS: ['arn:aws:iam:::user/reader'] },
        Action: ['s3:ListBucket', 's3:GetObject'],
        Resource: [`arn:aws:s3:::${bucket}`, `arn:aws:s3:::${bucket}/*`],
      },
    ],
  });
}
