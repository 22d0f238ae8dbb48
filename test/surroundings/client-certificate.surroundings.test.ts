/**
 * A source behind the real nginx and HAProxy, which demand a client certificate and refuse
 * it each in its own way: with a 400, and with a TLS alert. A program that cannot be had
 * here is named on stderr, and its tests are skipped.
 */
import { describe, expect, test } from 'vitest';
import {
  makeCertificates,
  type TestCertificates,
} from '../source/certificate.ts';
import { openCertificateClient } from '../source/certificate-client.ts';
import { failureOf, PARTY } from '../source/test-source.ts';
import { pageJson, send, serve } from '../source/wire/wire-server.ts';
import { Daemon, findProgram } from './programs.ts';

const HOUR_MS = 3_600_000;
const SERVER = makeCertificates();
const GOOD = makeCertificates({ authorityName: 'the authority' });
const OF_NOBODY = makeCertificates({ authorityName: 'of nobody' });
const WRONG: readonly (readonly [string, TestCertificates])[] = [
  ['of another authority', makeCertificates({ authorityName: 'another' })],
  // As after a renewal of the authority, which keeps its name.
  [
    'of an authority with the same name',
    makeCertificates({ authorityName: 'the authority' }),
  ],
  ['that has expired', makeCertificates({ validMs: -HOUR_MS })],
];

interface Place {
  readonly dir: string;
  readonly port: number;
  /** The host and port of the source. */
  readonly upstream: string;
}

interface Front {
  readonly name: string;
  /** The Debian package. */
  readonly package: string;
  readonly binary: string;
  readonly configure: (place: Place) => string;
  readonly args: (file: string) => readonly string[];
  /** The error of a refused request. */
  readonly refusal: object;
}

const FRONTS: readonly Front[] = [
  {
    name: 'nginx',
    package: 'nginx',
    binary: 'usr/sbin/nginx',
    configure: ({ dir, port, upstream }) => `
      daemon off; master_process off; pid ${dir}/pid; error_log stderr;
      events {}
      http {
        access_log off;
        client_body_temp_path ${dir}/body; proxy_temp_path ${dir}/proxy;
        fastcgi_temp_path ${dir}/f; uwsgi_temp_path ${dir}/u; scgi_temp_path ${dir}/s;
        server {
          listen 127.0.0.1:${port} ssl;
          ssl_certificate ${dir}/server.crt; ssl_certificate_key ${dir}/server.crt.key;
          ssl_client_certificate ${dir}/clients.crt; ssl_verify_client on;
          location / { proxy_pass http://${upstream}; }
        }
      }`,
    args: (file) => ['-e', 'stderr', '-c', file],
    refusal: {
      code: 'SOURCE_REFUSED',
      message: expect.stringContaining('The SSL certificate error'),
    },
  },
  {
    name: 'HAProxy',
    package: 'haproxy',
    binary: 'usr/sbin/haproxy',
    configure: ({ dir, port, upstream }) => `
defaults
  mode http
  timeout connect 5s
  timeout client 1m
  timeout server 1m
listen source
  bind 127.0.0.1:${port} ssl crt ${dir}/server.crt ca-file ${dir}/clients.crt verify required
  server source ${upstream}
`,
    args: (file) => ['-db', '-f', file],
    refusal: {
      code: 'SOURCE_UNAUTHORIZED',
      message: expect.stringContaining('SOURCE_CLIENT_CERT_FILE ('),
    },
  },
];

for (const front of FRONTS) {
  const program = await findProgram(front.package, front.binary);
  describe.skipIf(program === undefined)(`behind ${front.name}`, () => {
    test.each(WRONG)(
      'a client certificate %s is refused, and the one that follows is accepted',
      async (_, wrong) => {
        if (program === undefined) return;
        const upstream = await serve((_request, response) =>
          send(response, 200, pageJson('parties', [{ id: PARTY }])),
        );
        await using daemon = await Daemon.start(
          program,
          front.binary,
          (dir, port) =>
            front.configure({ dir, port, upstream: upstream.url.host }),
          front.args,
          {
            'server.crt': `${SERVER.cert}${SERVER.key}`,
            'server.crt.key': SERVER.key,
            'clients.crt': GOOD.authority,
          },
        );
        const client = openCertificateClient(
          daemon.port,
          SERVER.authority,
          OF_NOBODY,
        );

        client.write(wrong);
        const error = await failureOf(client.ask());
        expect(client.credentials.refusedForMs()).toBeDefined();
        expect(error).toMatchObject(front.refusal);

        client.write(GOOD);
        expect((await client.ask()).rows).toHaveLength(1);
        expect(client.credentials.refusedForMs()).toBeUndefined();
      },
    );
  });
}
