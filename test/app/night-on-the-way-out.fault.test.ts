/**
 * Whole scheduled nights whose source is away, or hardly there, in ways that only the way
 * to it shows: a proxy that refuses tunnels, answers that say when to come back, and
 * answers of one byte a second.
 */
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import {
  createServer as createHttpServer,
  request,
  type Server,
} from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { enqueueRun } from '../../src/runs/enqueue.ts';
import type { Run } from '../../src/runs/store/run-store.ts';
import { makeCertificates } from '../source/certificate.ts';
import { startSandbox } from '../support/sandbox.ts';
import { waitFor } from '../support/wait-for.ts';
import { type RealApp, startRealApp } from './real-app.ts';

const NETWORK = {
  parties: 6,
  historyMs: 3_600_000,
  rateLimit: 'none',
} as const;
const RETRIES = {
  attemptsMax: 2,
  elapsedMaxMs: 1_000,
  unreachableMaxMs: 1_000,
  onlyCheap: false,
};
const IMPATIENT = {
  sourceLimits: {
    connectMs: 2_000,
    listRetries: RETRIES,
    exportRetries: { ...RETRIES, onlyCheap: true },
  },
};
const SHORT = {
  headersMs: 5_000,
  idleMs: 5_000,
  callMs: 60_000,
  drip: { bytesPerSecondMin: 1_024, windowMs: 2_000 },
};
const DRIPPED = {
  sourceLimits: { ...IMPATIENT.sourceLimits, list: SHORT, export: SHORT },
};
const WAITED = {
  verdict: 'complete',
  evidence: {
    sourceWaits: { times: expect.any(Number) as number },
    exports: { failed: 0, unasked: 0 },
  },
};

describe('a scheduled night behind a proxy', () => {
  test.each<[string, number | 'reset']>([
    ['502', 502],
    ['503', 503],
    ['504', 504],
    ['a reset connection', 'reset'],
  ])(
    'waits while the proxy answers CONNECT with %s, and is complete',
    async (_, refusal) => {
      await using world = await openWorld();
      world.proxy.refuseWith(refusal);
      const runId = await startNight(world.mirror, 'before');
      await waitFor(async () => await isWaiting(world.mirror, runId), {
        what: 'the night to wait',
      });
      world.proxy.refuseWith(undefined);
      expect(await ended(world.mirror, runId)).toMatchObject(WAITED);
    },
  );

  test('waits for a proxy that goes away amid the exports, and blames no ledger', async () => {
    await using world = await openWorld();
    let exports = 0;
    world.sandbox.faults.add(({ route }) => {
      if (route !== 'export') return undefined;
      exports += 1;
      if (exports === 3) world.proxy.refuseWith(503);
      return undefined;
    });
    const runId = await startNight(world.mirror, 'amid');
    await waitFor(async () => await isWaiting(world.mirror, runId), {
      what: 'the night to wait',
    });
    world.proxy.refuseWith(undefined);
    expect(await ended(world.mirror, runId)).toMatchObject(WAITED);
  });

  test.each([403, 407])(
    'ends at once if the proxy answers CONNECT with %i, after few of them',
    async (status) => {
      await using world = await openWorld();
      world.proxy.refuseWith(status);
      const run = await ended(
        world.mirror,
        await startNight(world.mirror, `${status}`),
      );
      expect(run.verdict).not.toBe('complete');
      expect(run.evidence).not.toHaveProperty('sourceAway');
      expect(JSON.stringify(run.evidence)).toContain('PROXY_REFUSED');
      // Accounts are locked after a few wrong passwords.
      expect(world.proxy.refused).toBeLessThanOrEqual(8);
    },
  );
});

describe('a scheduled night whose source says when to come back', () => {
  test.each([
    ['in a second', 503, '1'],
    ['in the past', 503, 'Wed, 21 Oct 2015 07:28:00 GMT'],
    ['in a lifetime', 503, '999999999'],
    ['in 2099, with a 429', 429, 'Wed, 21 Oct 2099 07:28:00 GMT'],
    ['in a day, with a 502', 502, '86400'],
    ['with no number', 503, 'soon'],
    ['with a negative number', 429, '-5'],
  ])(
    'is complete as soon as the source is back: %s',
    async (_, status, retryAfter) => {
      await using sandbox = await startSandbox(NETWORK);
      await using mirror = await startRealApp(
        { SOURCE_URL: sandbox.url },
        IMPATIENT,
      );
      let isAway = true;
      sandbox.faults.add(() =>
        isAway
          ? {
              answer: {
                status,
                body: 'come back later',
                headers: { 'retry-after': retryAfter },
              },
            }
          : undefined,
      );
      const runId = await startNight(mirror, 'later');
      await waitFor(async () => await isWaiting(mirror, runId), {
        what: 'the night to wait',
      });
      isAway = false;
      expect(await ended(mirror, runId)).toMatchObject(WAITED);
    },
  );
});

describe('a scheduled night whose source sends one byte a second', () => {
  test('loses the ledger that is sent so, and no other', async () => {
    await using world = await openDrippingWorld();
    let slow: string | undefined;
    world.dripWhen((url) => {
      if (!url.pathname.endsWith('/ledgerentry/export')) return false;
      const asked = url.searchParams.get('partyId') ?? '';
      slow ??= asked;
      return asked === slow;
    });
    const run = await ended(
      world.mirror,
      await startNight(world.mirror, 'drip'),
    );
    expect(run).toMatchObject({
      verdict: 'incomplete',
      evidence: {
        exports: {
          failed: 1,
          unasked: 0,
          failures: [
            { partyId: slow, outcome: { error: { code: 'SOURCE_DRIP' } } },
          ],
        },
      },
    });
    expect(run.evidence).not.toHaveProperty('sourceAway');
  });

  test('exports the parties that are known if their list is sent so', async () => {
    await using world = await openDrippingWorld();
    const first = await startNight(world.mirror, 'first');
    const { evidence } = await ended(world.mirror, first);
    world.dripWhen((url) => url.pathname.endsWith('/parties'));
    const run = await ended(
      world.mirror,
      await startNight(world.mirror, 'second'),
    );
    const { parties } = evidence['exports'] as { parties: number };
    expect(run).toMatchObject({
      verdict: 'incomplete',
      evidence: { exports: { parties, failed: 0, unasked: 0 } },
    });
    expect(JSON.stringify(run.evidence['lists'])).toContain('SOURCE_DRIP');
  });
});

async function startNight({ app }: RealApp, name: string): Promise<string> {
  const run = await app.jobs.runs.create({
    kind: 'nightly',
    subject: 'scheduled',
    scheduleKey: `nightly ${name}`,
  });
  await enqueueRun(run, app.jobs);
  return run.runId;
}

async function isWaiting({ app }: RealApp, runId: string): Promise<boolean> {
  const run = await app.jobs.runs.get(runId);
  if (run?.state === 'done')
    throw new Error(`The night has ended: ${JSON.stringify(run.evidence)}`);
  return run?.params['sourceAbsence'] !== undefined;
}

function ended({ app }: RealApp, runId: string): Promise<Run> {
  return waitFor(
    async () => {
      const run = await app.jobs.runs.get(runId);
      return run?.state === 'done' ? run : undefined;
    },
    { what: 'the night to end' },
  );
}

/** A mirror that reaches its source through a proxy, by TLS. */
async function openWorld() {
  await using stack = new AsyncDisposableStack();
  const sandbox = stack.use(await startSandbox(NETWORK));
  const { authority, cert, key } = makeCertificates();
  const front = createHttpsServer({ cert, key }, (given, answer) => {
    const { method, headers } = given;
    const asked = request(
      new URL(given.url ?? '/', sandbox.url),
      { method, headers },
      (got) => {
        answer.writeHead(got.statusCode ?? 500, got.headers);
        got.pipe(answer);
      },
    );
    asked.on('error', () => answer.destroy());
    given.pipe(asked);
  });
  const frontPort = await listen(front, stack);
  const proxy = new Proxy();
  const proxyPort = await listen(proxy.server, stack);
  const dir = await mkdtemp(join(tmpdir(), 'lm-way-out-'));
  stack.defer(() => rm(dir, { recursive: true, force: true }));
  const authorities = join(dir, 'ca.pem');
  await writeFile(authorities, authority);
  const mirror = stack.use(
    await startRealApp(
      {
        SOURCE_URL: `https://127.0.0.1:${frontPort}`,
        HTTPS_PROXY: `http://127.0.0.1:${proxyPort}`,
        NODE_EXTRA_CA_CERTS: authorities,
      },
      IMPATIENT,
    ),
  );
  const owned = stack.move();
  return {
    sandbox,
    proxy,
    mirror,
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

/** A mirror whose source stands behind a front that may send a byte a second. */
async function openDrippingWorld() {
  await using stack = new AsyncDisposableStack();
  const sandbox = stack.use(await startSandbox(NETWORK));
  let isDripping: (url: URL) => boolean = () => false;
  const front = createHttpServer((given, answer) => {
    const url = new URL(given.url ?? '/', sandbox.url);
    const headers = { ...given.headers, 'accept-encoding': 'identity' };
    const asked = request(url, { headers }, (got) => {
      answer.writeHead(got.statusCode ?? 500, got.headers);
      if (isDripping(url)) void drip(got, answer);
      else got.pipe(answer);
    });
    asked.on('error', () => answer.destroy());
    asked.end();
  });
  const port = await listen(front, stack);
  const mirror = stack.use(
    await startRealApp({ SOURCE_URL: `http://127.0.0.1:${port}` }, DRIPPED),
  );
  const owned = stack.move();
  return {
    mirror,
    dripWhen: (isSlow: (url: URL) => boolean): void => {
      isDripping = isSlow;
    },
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function drip(from: Readable, to: Writable): Promise<void> {
  const content = await buffer(from);
  for (const byte of content) {
    if (to.destroyed) return;
    to.write(Buffer.of(byte));
    await sleep(1_000, undefined, { ref: false });
  }
  to.end();
}

async function listen(
  server: Server,
  stack: AsyncDisposableStack,
): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  stack.defer(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Opens tunnels, or refuses them and closes those that are open. */
class Proxy {
  readonly server: Server;
  /** How many tunnels it has refused. */
  refused = 0;
  readonly #open = new Set<Socket>();
  #refusal: number | 'reset' | undefined;

  constructor() {
    this.server = createHttpServer();
    this.server.on('connect', ({ url = '' }, near: Socket) => {
      near.on('error', () => undefined);
      if (this.#refusal === undefined) {
        this.#tunnel(near, url);
        return;
      }
      this.refused += 1;
      if (this.#refusal === 'reset') near.resetAndDestroy();
      else near.end(`HTTP/1.1 ${this.#refusal} Refused\r\n\r\n`);
    });
  }

  refuseWith(refusal: number | 'reset' | undefined): void {
    this.#refusal = refusal;
    for (const socket of this.#open) socket.destroy();
  }

  #tunnel(near: Socket, target: string): void {
    const [host, port] = target.split(':');
    const far = connect(Number(port), host, () => {
      near.write('HTTP/1.1 200 Connected\r\n\r\n');
      near.pipe(far).pipe(near);
    });
    for (const socket of [near, far]) {
      this.#open.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        this.#open.delete(socket);
        near.destroy();
        far.destroy();
      });
    }
  }
}
