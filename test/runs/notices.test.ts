/** What NOTIFY_URL receives, on a real socket. */
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test } from 'vitest';
import { errorLine } from '../../src/errors/errors.ts';
import { RotatingSecret } from '../../src/network/rotating-secret.ts';
import { rememberSecrets } from '../../src/secrets/secret-masking.ts';
import {
  type Notice,
  type PostOptions,
  openPoster,
} from '../../src/runs/notices.ts';

const REPORT = {
  runId: 'r-1',
  kind: 'nightly',
  subject: 'scheduled',
  verdict: 'complete',
  evidence: { rows: '7' },
};
const SECRET = `whsec_${Buffer.from('a key of twenty-four by').toString('base64')}`;

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

test.each([401, 403, 404, 410])(
  'a notice that is refused with %i goes to the address that its file holds now',
  async (status) => {
    const former = await receiver(status);
    const present = await receiver(200);
    let held = former.url.href;
    const address = new RotatingSecret(
      { href: former.url.href },
      { name: 'NOTIFY_URL_FILE (/run/notify)', read: () => ({ href: held }) },
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
    const signed = `${String(headers['webhook-id'])}.${String(headers['webhook-timestamp'])}.${body}`;
    const key = Buffer.from(SECRET.slice('whsec_'.length), 'base64');
    expect(headers['webhook-signature']).toBe(
      `v1,${createHmac('sha256', key).update(signed).digest('base64')}`,
    );
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
