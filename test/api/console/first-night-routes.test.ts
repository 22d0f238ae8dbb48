/** The routes of the first night's page: who may look at the source, and when. */
import { describe, expect, test } from 'vitest';
import type { ConsoleParts } from '../../../src/api/console/ports.ts';
import type { FirstRunPreview } from '../../../src/runs/nightly/nightly-preview.ts';
import { apiWithoutDatabase, jobsOf, NO_CONSOLE } from '../mirror.ts';
import { FIRST_NIGHT } from './fixed-console.ts';

const TOKEN = 'write-token-of-the-tests-1';
const READ_TOKEN = 'read-token-of-the-tests-2';
const LOOK: FirstRunPreview = {
  lists: [],
  exports: { least: 0, most: null },
  networkRequests: 1,
  requests: { least: 1, most: null },
  seconds: { least: 1, most: null },
  listBytes: null,
};

async function send(
  request: 'GET /console/access' | 'POST /console/look',
  {
    token,
    hasSource = true,
    ...parts
  }: Partial<ConsoleParts> & { token?: string; hasSource?: boolean },
): Promise<{ status: number; body: Record<string, unknown> }> {
  const source = { id: 'source', url: 'https://ledger.example.com/' };
  const server = await apiWithoutDatabase({
    token: token === undefined ? undefined : TOKEN,
    readToken: token === undefined ? undefined : READ_TOKEN,
    jobs: jobsOf(hasSource ? { source } : {}),
    console: {
      ...NO_CONSOLE,
      preview: async () => FIRST_NIGHT,
      look: async () => LOOK,
      ...parts,
    },
  });
  const [method = '', url = ''] = request.split(' ');
  const answer = await server.inject({
    method: method as 'GET' | 'POST',
    url,
    headers: {
      host: 'localhost',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    ...(method === 'POST' ? { payload: {} } : {}),
  });
  return { status: answer.statusCode, body: answer.json() };
}

describe('GET /console/access', () => {
  test.each([
    [undefined, 'write'],
    [TOKEN, 'write'],
    [READ_TOKEN, 'read'],
  ])('returns for the token %s the role %s', async (token, role) => {
    expect(
      await send('GET /console/access', token === undefined ? {} : { token }),
    ).toEqual({ status: 200, body: { role, hasLogin: token !== undefined } });
  });
});

describe('POST /console/look', () => {
  test('returns the estimate to the token that may start runs', async () => {
    expect(await send('POST /console/look', { token: TOKEN })).toEqual({
      status: 200,
      body: LOOK,
    });
  });

  test('refuses the token that only reads, and asks the source nothing', async () => {
    let looks = 0;
    const { status } = await send('POST /console/look', {
      token: READ_TOKEN,
      look: async () => {
        looks += 1;
        return LOOK;
      },
    });
    expect([status, looks]).toEqual([403, 0]);
  });

  test('refuses once the lists were read, because the preview is exact then', async () => {
    const { status, body } = await send('POST /console/look', {
      preview: async () => ({ ...FIRST_NIGHT, isFirst: false }),
    });
    expect([status, body['message']]).toEqual([
      422,
      'the lists were read before, so the mirror estimates without a look',
    ]);
  });

  test('reports a missing source, and a source that does not answer', async () => {
    const missing = await send('POST /console/look', { hasSource: false });
    expect([missing.status, missing.body['message']]).toEqual([
      503,
      'this process has no SOURCE_URL',
    ]);
    const silent = await send('POST /console/look', {
      look: async () => {
        throw new Error('connect ECONNREFUSED 127.0.0.1:1');
      },
    });
    expect([silent.status, silent.body['message']]).toEqual([
      503,
      'the look at the source failed: connect ECONNREFUSED 127.0.0.1:1',
    ]);
  });
});
