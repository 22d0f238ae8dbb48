/**
 * A source that no longer accepts the client certificate of before. Servers refuse one in
 * different ways: they close the connection, answer 400 as nginx does, or answer 403.
 */
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { expect, test } from 'vitest';
import { transportError } from '../../src/source/failure.ts';
import { makeCertificates, type TestCertificates } from './certificate.ts';
import { openCertificateClient } from './certificate-client.ts';
import { failureOf, PARTY } from './test-source.ts';
import { pageJson } from './wire/wire-server.ts';

const GOOD = pageJson('parties', [{ id: PARTY }]);
const SERVER = makeCertificates();
const OLD = makeCertificates();
const NEW = makeCertificates();

type Refusal = 'closes the connection' | 'answers 400' | 'answers 403';

test.each<Refusal>(['closes the connection', 'answers 400', 'answers 403'])(
  'a source that %s is shown the certificate that the files hold by then',
  async (refusal) => {
    await using world = await openWorld(refusal);
    expect((await world.ask()).rows).toHaveLength(1);
    world.accept(NEW);
    world.write(NEW);
    expect((await world.ask()).rows).toHaveLength(1);
    expect(world.accepted).toEqual([OLD.cert, NEW.cert].map(bodyOf));
  },
);

test('a certificate stays in use while the source accepts it, whatever its files hold', async () => {
  await using world = await openWorld('closes the connection');
  world.write(NEW);
  await world.ask();
  expect(world.accepted).toEqual([bodyOf(OLD.cert)]);
});

test.each(['of another pair', 'empty', 'gone', 'not a key'])(
  'while the key file is %s, the pair of before is used, and the whole pair afterwards',
  async (state) => {
    await using world = await openWorld('answers 403');
    world.accept(NEW);
    world.write(NEW);
    if (state === 'of another pair') writeFileSync(world.keyPath, OLD.key);
    if (state === 'empty') writeFileSync(world.keyPath, '');
    if (state === 'gone') rmSync(world.keyPath);
    if (state === 'not a key') writeFileSync(world.keyPath, 'half of a fi');
    const error = await failureOf(world.ask());
    expect(error).toMatchObject({
      code: 'SOURCE_FORBIDDEN',
      message: expect.stringContaining(
        `SOURCE_CLIENT_CERT_FILE (${world.certPath})`,
      ),
    });
    world.write(NEW);
    expect((await world.ask()).rows).toHaveLength(1);
  },
);

test.each<[Refusal, string]>([
  ['answers 400', 'counts as a refusal'],
  ['answers 403', 'counts as a refusal'],
  // A node that crashes looks the same.
  ['closes the connection', 'does not count as a refusal'],
])(
  'a source that %s, whatever the files hold, %s until it answers again',
  async (refusal, expected) => {
    await using world = await openWorld(refusal);
    await world.ask();
    world.accept(NEW);
    await failureOf(world.ask());
    const isRefused = world.credentials.refusedForMs() !== undefined;
    expect(isRefused).toBe(expected === 'counts as a refusal');
    world.write(NEW);
    await world.ask();
    expect(world.credentials.refusedForMs()).toBeUndefined();
  },
);

test.each([
  'ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED',
  'ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_EXPIRED',
  'ERR_SSL_SSLV3_ALERT_CERTIFICATE_EXPIRED',
  'ERR_SSL_SSLV3_ALERT_BAD_CERTIFICATE',
  'ERR_SSL_SSLV3_ALERT_CERTIFICATE_UNKNOWN',
  'ERR_SSL_TLSV1_ALERT_UNKNOWN_CA',
  'ERR_SSL_TLSV1_ALERT_ACCESS_DENIED',
  'ERR_SSL_TLSV1_ALERT_DECRYPT_ERROR',
])('the TLS alert %s ends the request and names the settings', (code) => {
  const alert = Object.assign(new Error('ssl alert'), { code });
  expect(transportError('list', 'https://source', alert)).toMatchObject({
    code: 'SOURCE_UNAUTHORIZED',
    message: expect.stringContaining('check SOURCE_CLIENT_CERT'),
  });
});

async function openWorld(refusal: Refusal) {
  const accepted: string[] = [];
  const tls = { key: SERVER.key, cert: SERVER.cert };
  const server = createServer(
    {
      ...tls,
      ca: OLD.authority,
      requestCert: true,
      rejectUnauthorized: refusal === 'closes the connection',
    },
    (request, response) => {
      const socket = request.socket as TLSSocket;
      if (!socket.authorized) {
        const status = refusal === 'answers 400' ? 400 : 403;
        response.writeHead(status, { connection: 'close' }).end('refused');
        return;
      }
      accepted.push(socket.getPeerCertificate().raw.toString('base64'));
      response.writeHead(200, { 'content-type': 'application/json' }).end(GOOD);
    },
  );
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    ...openCertificateClient(port, SERVER.authority, OLD),
    accepted,
    accept: ({ authority }: TestCertificates): void => {
      server.setSecureContext({ ...tls, ca: authority });
      server.closeAllConnections();
    },
    [Symbol.asyncDispose]: async (): Promise<void> => {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** @returns the certificate without the lines of PEM */
function bodyOf(pem: string): string {
  return pem.replaceAll(/-----[^-]+-----|\s/g, '');
}
