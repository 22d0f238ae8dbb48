/** Pages of other origins: none may read anything unless the operator names it. */
import { describe, expect, test } from 'vitest';
import { origins as form } from '../../../src/config/value-forms.ts';
import { apiWithoutDatabase } from '../mirror.ts';

const TOKEN = 'correct-horse-battery';
const APP = 'https://app.example';
const FETCHED = { host: 'localhost', 'sec-fetch-site': 'cross-site' };
const BEARER = { authorization: `Bearer ${TOKEN}` };
const PARTIES = '/api/v2/parties';

async function answerOf(
  url: string,
  headers: Record<string, string>,
  method: 'GET' | 'OPTIONS' | 'POST' = 'GET',
) {
  const server = await apiWithoutDatabase({ token: TOKEN, origins: [APP] });
  return server.inject({ method, url, headers: { ...FETCHED, ...headers } });
}

describe('a page of an origin that is named', () => {
  test('may read the interface of the source, and the headers that say what is known', async () => {
    const answer = await answerOf(PARTIES, { origin: APP, ...BEARER });
    expect(answer.statusCode).toBe(200);
    expect(answer.headers['access-control-allow-origin']).toBe(APP);
    expect(answer.headers['access-control-expose-headers']).toContain(
      'x-mirror-known-to',
    );
    expect(answer.headers['access-control-allow-credentials']).toBeUndefined();
    expect(answer.headers['vary']).toContain('Origin');
  });

  test('is told before its request that it may send a token', async () => {
    const asked = { 'access-control-request-method': 'GET' };
    const answer = await answerOf(
      PARTIES,
      { origin: APP, ...asked },
      'OPTIONS',
    );
    expect(answer.statusCode).toBe(204);
    expect(answer.headers).toMatchObject({
      'access-control-allow-origin': APP,
      'access-control-allow-methods': 'GET',
      'access-control-allow-headers': 'Authorization',
    });
  });

  test('needs the token all the same', async () => {
    const answer = await answerOf(PARTIES, { origin: APP });
    expect(answer.statusCode).toBe(401);
  });

  test.each(['/mirror/status', '/mirror/runs', '/console/now'])(
    'may not read %s',
    async (url) => {
      const answer = await answerOf(url, { origin: APP, ...BEARER });
      expect(answer.statusCode).toBe(403);
      expect(answer.headers['access-control-allow-origin']).toBeUndefined();
    },
  );
});

test.each(['https://other.example', 'http://app.example', 'null'])(
  'a page of %s may read nothing',
  async (origin) => {
    const answer = await answerOf(PARTIES, { origin, ...BEARER });
    expect(answer.statusCode).toBe(403);
    expect(answer.headers['access-control-allow-origin']).toBeUndefined();
  },
);

test('API_ORIGINS takes origins alone', () => {
  const parse = (text: string) => form.parse(text);
  expect(parse('https://App.example, http://localhost:3000/')).toEqual([
    APP,
    'http://localhost:3000',
  ]);
  for (const text of ['*', 'app.example', 'https://a.example/path', 'ftp://a'])
    expect(parse(text)).toBeUndefined();
});
