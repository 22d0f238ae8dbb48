/** What NOTIFY_URL receives, on a real socket. */
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { openNotifyAddress } from '../../src/app/rotating-secrets.ts';
import { readConfig } from '../../src/config/environment.ts';
import { errorLine } from '../../src/errors/errors.ts';
import { RotatingSecret } from '../../src/network/rotating-secret.ts';
import { rememberSecrets } from '../../src/secrets/secret-masking.ts';
import {
  type Notice,
  type PostOptions,
  openPoster,
  sendTestNotice,
} from '../../src/runs/notices.ts';

const REPORT = {
  runId: 'r-1',
  kind: 'nightly',
  subject: 'scheduled',
  verdict: 'complete',
  evidence: { rows: '7' },
};
const SECRET = `whsec_${Buffer.from('a key of twenty-four bytes').toString('base64')}`;

interface Received {
  readonly url: string | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** @param statuses of the answers, in their order; the last one for all others */
async function receiver(
  ...statuses: readonly number[]
): Promise<{ received: Received[]; url: URL }> {
  const received: Received[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      received.push({
        url: request.url,
        headers: request.headers,
        body: Buffer.concat(chunks).toString(),
      });
      response
        .writeHead(statuses[received.length - 1] ?? statuses.at(-1) ?? 200)
        .end();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
  });
  return {
    received,
    url: new URL(
      `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook/T00?x=1`,
    ),
  };
}

const FINISHED: Notice = { id: 'run_r-1', type: 'run.finished', run: REPORT };

describe('a test notice', () => {
  const options = { version: '1.2.3', secret: SECRET };

  test('arrives once, signed like any notice, and is reported as accepted', async () => {
    const { received, url } = await receiver(204);
    const result = await sendTestNotice(url, options);
    expect(result).toEqual({
      host: url.host,
      outcome: 'accepted',
      status: 204,
      detail: expect.stringMatching(
        /accepted the test notice test_\S+ \(status 204\)$/,
      ),
    });
    expect(received).toHaveLength(1);
    const { headers = {}, body = '' } = received[0] ?? {};
    expect(JSON.parse(body)).toMatchObject({
      type: 'notice.test',
      id: headers['webhook-id'],
      message: expect.stringContaining('this is a test notice'),
    });
    expect(headers['webhook-signature']).toMatch(/^v1,/);
  });

  test('is a line of text for a chat', async () => {
    const { received, url } = await receiver(200);
    await sendTestNotice(url, { ...options, format: 'slack' });
    expect(JSON.parse(received[0]?.body ?? '')).toEqual({
      text: 'ledger-mirror: this is a test notice; nothing has happened',
    });
  });

  test.each([301, 400, 404, 500])(
    'that is answered with %i is reported as refused, without a second attempt',
    async (status) => {
      const { received, url } = await receiver(status);
      const result = await sendTestNotice(url, { version: '1.2.3' });
      expect(result).toMatchObject({ outcome: 'refused', status });
      expect(result.detail).toContain(`status ${status}`);
      // The path of the address is a secret of many receivers.
      expect(result.detail).not.toContain('/hook');
      expect(received).toHaveLength(1);
    },
  );

  test('that nobody answers is reported as unreachable', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    server.close();
    await once(server, 'close');
    const result = await sendTestNotice(
      new URL(`http://127.0.0.1:${port}/hook`),
      options,
    );
    expect(result).toMatchObject({ outcome: 'unreachable', status: null });
    expect(result.detail).toMatch(/ECONNREFUSED.*check NOTIFY_URL/);
  });
});

test.each([401, 403, 404, 410])(
  'a notice that is refused with %i goes to the address that its file holds now',
  async (status) => {
    const former = await receiver(status);
    const present = await receiver(200);
    let held = former.url.href;
    const address = new RotatingSecret(
      { href: former.url.href, secret: undefined },
      {
        name: 'NOTIFY_URL_FILE (/run/notify)',
        read: () => ({ href: held, secret: undefined }),
      },
    );
    await expect(deliver(former.url, { address })).rejects.toMatchObject({
      code: 'NOTIFY_FAILED',
    });
    held = present.url.href.replace('http://', 'http://user:word@');
    await deliver(former.url, { address });
    expect(present.received).toMatchObject([
      {
        headers: {
          authorization: `Basic ${Buffer.from('user:word').toString('base64')}`,
        },
      },
    ]);
  },
);

test.each([400, 401, 403])(
  'a notice that is refused with %i is signed with the key that its file holds now',
  async (status) => {
    const { received, url } = await receiver(status, 200);
    const present = `whsec_${Buffer.from('another key of 24 bytes!').toString('base64')}`;
    const address = new RotatingSecret(
      { href: url.href, secret: SECRET },
      {
        name: 'NOTIFY_URL and NOTIFY_SECRET_FILE (/run/key)',
        read: () => ({ href: url.href, secret: present }),
      },
    );
    await deliver(url, { address });
    expect(received.map(signatureOf)).toEqual(
      [SECRET, present].map((secret, index) => signed(received[index], secret)),
    );
  },
);

test.each([
  [400, 'NOTIFY_REFUSED'],
  [401, 'NOTIFY_FAILED'],
])(
  'a key that is refused with %i and has not changed is named with its file',
  async (status, code) => {
    const { received, url } = await receiver(status);
    const value = { href: url.href, secret: SECRET };
    const address = new RotatingSecret(value, {
      name: 'NOTIFY_URL and NOTIFY_SECRET_FILE (/run/key)',
      read: () => ({ ...value }),
    });
    await expect(deliver(url, { address })).rejects.toMatchObject({
      code,
      message: expect.stringContaining('NOTIFY_SECRET_FILE (/run/key)'),
    });
    expect(received[0]?.headers['webhook-signature']).toBeDefined();
  },
);

test('the key and the address of notices are read again from their files', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'lm-notify-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const urlFile = join(dir, 'url');
  const keyFile = join(dir, 'key');
  const present = `whsec_${Buffer.from('another key of 24 bytes!').toString('base64')}`;
  writeFileSync(urlFile, 'https://one.example/hook');
  writeFileSync(keyFile, SECRET);
  const config = readConfig({
    env: { NOTIFY_URL_FILE: urlFile, NOTIFY_SECRET_FILE: keyFile },
    cwd: dir,
  });
  const address = openNotifyAddress(config);
  const first = address?.current;
  expect(first).toEqual({ href: 'https://one.example/hook', secret: SECRET });
  writeFileSync(keyFile, present);
  expect(address?.renew(first ?? { href: '', secret: undefined })).toBe(true);
  writeFileSync(urlFile, '');
  expect(address?.current).toEqual({
    href: 'https://one.example/hook',
    secret: present,
  });
  expect(address?.name).toBe(
    `NOTIFY_URL_FILE (${urlFile}) and NOTIFY_SECRET_FILE (${keyFile})`,
  );
});

function signatureOf({ headers }: Received): unknown {
  return headers['webhook-signature'];
}

/** The signature of Standard Webhooks, worked out anew. */
function signed(received: Received | undefined, secret: string): string {
  const { headers = {}, body = '' } = received ?? {};
  const text = `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`;
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64');
  return `v1,${createHmac('sha256', key).update(text).digest('base64')}`;
}

async function deliver(
  url: URL,
  options: Partial<PostOptions> = {},
  notice = FINISHED,
): Promise<void> {
  await openPoster(url, { version: '0.0.0', ...options })(notice);
}

describe('a notice', () => {
  test('is the run with a type, and can be verified as Standard Webhooks say', async () => {
    const { received, url } = await receiver(204);
    await deliver(url, { secret: SECRET });
    const [{ headers, body, url: path } = { headers: {}, body: '', url: '' }] =
      received;
    expect(path).toBe('/hook/T00?x=1');
    expect(JSON.parse(body)).toEqual({ type: 'run.finished', ...REPORT });
    expect(headers['webhook-signature']).toBe(signed(received[0], SECRET));
  });

  test('has the same id on every try, and the type of what happened', async () => {
    const { received, url } = await receiver(503, 200);
    await deliver(url, {}, { ...FINISHED, type: 'run.failed' });
    expect(received.map(({ headers }) => headers['webhook-id'])).toEqual([
      'run_r-1',
      'run_r-1',
    ]);
    expect(JSON.parse(received[1]?.body ?? '')).toMatchObject({
      type: 'run.failed',
    });
    expect(received[0]?.headers['webhook-signature']).toBeUndefined();
  });

  test('goes to a URL with a user, as Basic authentication', async () => {
    const { received, url } = await receiver(200);
    url.username = 'me';
    url.password = 'p@ss:w';
    await deliver(url);
    expect(received[0]?.headers.authorization).toBe(
      `Basic ${btoa('me:p@ss:w')}`,
    );
  });

  test.each([
    ['run.started', 'started'],
    ['run.waiting', 'waits for the source'],
    ['run.finished', 'ended complete'],
    ['run.recovered', 'ended complete again'],
    ['run.failed', 'ended incomplete'],
    ['run.cancelled', 'was cancelled'],
  ] as const)(
    'of %s is one line in the form that Slack takes',
    async (type, words) => {
      const { received, url } = await receiver(200);
      const run = {
        ...REPORT,
        verdict: type === 'run.failed' ? 'incomplete' : 'complete',
      };
      await deliver(url, { format: 'slack' }, { id: 'run_r-1', type, run });
      expect(JSON.parse(received[0]?.body ?? '')).toEqual({
        text: `ledger-mirror: nightly run (scheduled) ${words}; run r-1`,
      });
    },
  );

  test('that a receiver redirects, refuses to connect to or never answers fails in one line, with what to do', async () => {
    const redirecting = await receiver(301);
    const hanging = createServer(() => undefined).listen(0, '127.0.0.1');
    await once(hanging, 'listening');
    onTestFinished(() => {
      hanging.closeAllConnections();
      hanging.close();
    });
    const { port } = hanging.address() as AddressInfo;
    const failures = [
      await deliver(redirecting.url).catch(errorLine),
      await deliver(new URL('http://127.0.0.1:2/T00')).catch(errorLine),
      await deliver(new URL(`http://127.0.0.1:${port}/T00`), {
        timeoutMs: 500,
      }).catch(errorLine),
    ];
    expect(failures).toEqual([
      expect.stringMatching(
        /^Cannot post the notice to 127.0.0.1:\d+: status 301, and redirects are not followed; check NOTIFY_URL/,
      ),
      expect.stringMatching(
        /^Cannot post the notice to 127.0.0.1:2: .*ECONNREFUSED.*; check NOTIFY_URL/,
      ),
      expect.stringMatching(
        /^Cannot post the notice to 127.0.0.1:\d+: no answer within 0.5 s; check NOTIFY_URL/,
      ),
    ]);
    expect(failures.join()).not.toContain('T00');
  });

  test('carries no secret, and its failure names no path', async () => {
    rememberSecrets(['SRC-S3cret-9988']);
    const { received, url } = await receiver(404);
    const evidence = { error: { message: 'invalid header SRC-S3cret-9988' } };
    const failure = await deliver(
      url,
      {},
      { ...FINISHED, run: { ...REPORT, evidence } },
    ).catch((error: unknown) => errorLine(error));
    expect(failure).toContain('status 404');
    expect(failure).not.toContain('/hook');
    expect(received.length).toBe(3);
    expect(received[0]?.body).toContain('[secret]');
    expect(received[0]?.body).not.toContain('SRC-S3cret-9988');
  });
});
