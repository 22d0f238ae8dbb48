/**
 * An OpenID Connect issuer that logs in everybody as the same person, without asking. It
 * has what oauth2-proxy uses: discovery, codes, signed ID tokens and the key to check them.
 */
import { generateKeyPairSync, sign } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const KEY_ID = 'key-of-a-test';
const HOUR_SECONDS = 3_600;

export interface OidcIssuer extends AsyncDisposable {
  readonly url: string;
}

/** Starts an issuer on a free port, for one client. */
export async function startOidcIssuer(clientId: string): Promise<OidcIssuer> {
  const { publicKey, privateKey } = generateKeyPairSync('rsa', {
    modulusLength: 2_048,
  });
  let url = '';
  /** The nonce of each code that was handed out. */
  const nonces = new Map<string, string>();

  function idToken(nonce: string | undefined): string {
    const nowSeconds = Math.floor(Date.now() / 1_000);
    const claims = {
      iss: url,
      aud: clientId,
      sub: 'ada',
      email: 'ada@example.com',
      email_verified: true,
      iat: nowSeconds,
      exp: nowSeconds + HOUR_SECONDS,
      nonce,
    };
    const encode = (value: object): string =>
      Buffer.from(JSON.stringify(value)).toString('base64url');
    const signed = `${encode({ alg: 'RS256', kid: KEY_ID })}.${encode(claims)}`;
    const signature = sign('sha256', Buffer.from(signed), privateKey);
    return `${signed}.${signature.toString('base64url')}`;
  }

  const documents: Readonly<Record<string, () => object>> = {
    '/.well-known/openid-configuration': () => ({
      issuer: url,
      authorization_endpoint: `${url}/authorize`,
      token_endpoint: `${url}/token`,
      jwks_uri: `${url}/keys`,
      response_types_supported: ['code'],
      subject_types_supported: ['public'],
      id_token_signing_alg_values_supported: ['RS256'],
    }),
    '/keys': () => ({
      keys: [
        {
          ...publicKey.export({ format: 'jwk' }),
          kid: KEY_ID,
          alg: 'RS256',
          use: 'sig',
        },
      ],
    }),
  };

  const server = createServer((request, response) => {
    const asked = new URL(request.url ?? '/', url);
    const sendJson = (value: object): void => {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(value));
    };
    if (asked.pathname === '/authorize') {
      const code = `code-${nonces.size}`;
      nonces.set(code, asked.searchParams.get('nonce') ?? '');
      const back = new URL(asked.searchParams.get('redirect_uri') ?? url);
      back.searchParams.set('code', code);
      back.searchParams.set('state', asked.searchParams.get('state') ?? '');
      response.writeHead(302, { location: back.href }).end();
      return;
    }
    if (asked.pathname === '/token') {
      let form = '';
      request.setEncoding('utf8').on('data', (text: string) => {
        form += text;
      });
      request.on('end', () => {
        const code = new URLSearchParams(form).get('code') ?? '';
        sendJson({
          access_token: 'an-access-token',
          token_type: 'Bearer',
          expires_in: HOUR_SECONDS,
          id_token: idToken(nonces.get(code)),
        });
      });
      return;
    }
    const document = documents[asked.pathname];
    if (document === undefined) response.writeHead(404).end();
    else sendJson(document());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    [Symbol.asyncDispose]: async () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
