/**
 * Wrong tokens: each is told in the log, many are slowed, and right ones still get in.
 */
import type { FastifyInstance, LightMyRequestResponse } from 'fastify';
import { describe, expect, test } from 'vitest';
import { createLog } from '../../../src/logging/log.ts';
import { apiWithoutDatabase } from '../mirror.ts';

const TOKEN = 'correct-horse-battery';
const FREE = 20;
const WAITING_MAX = 16;

interface Guarded {
  readonly server: FastifyInstance;
  readonly lines: Record<string, unknown>[];
}

async function startGuarded(): Promise<Guarded> {
  const lines: Record<string, unknown>[] = [];
  const write = (line: string): void =>
    void lines.push(JSON.parse(line) as Record<string, unknown>);
  const server = await apiWithoutDatabase({
    token: TOKEN,
    log: createLog('info', { write }),
  });
  return { server, lines };
}

function bearer(
  server: FastifyInstance,
  token: string,
  remoteAddress = '203.0.113.1',
): Promise<LightMyRequestResponse> {
  return server.inject({
    url: '/mirror/runs',
    remoteAddress,
    headers: { authorization: `Bearer ${token}` },
  });
}

function login(
  server: FastifyInstance,
  token: string,
): Promise<LightMyRequestResponse> {
  return server.inject({
    method: 'POST',
    url: '/login',
    remoteAddress: '203.0.113.1',
    payload: { token },
  });
}

describe('a wrong token', () => {
  test.each([
    ['as a bearer', bearer],
    ['at the login', login],
  ])(
    '%s is refused and logged, with the address and without the token',
    async (_way, ask) => {
      const { server, lines } = await startGuarded();
      expect((await ask(server, 'guess-number-one')).statusCode).toBe(401);
      expect(lines).toEqual([
        expect.objectContaining({
          level: 'warn',
          msg: 'A wrong token was refused',
          address: '203.0.113.1',
        }),
      ]);
      expect(JSON.stringify(lines)).not.toContain('guess-number-one');
    },
  );

  test('is answered late after twenty others in a minute, without telling whether it was wrong', async () => {
    const { server, lines } = await startGuarded();
    for (let guess = 0; guess < FREE; guess += 1) {
      expect(
        (await (guess % 2 === 0 ? bearer : login)(server, `guess-${guess}`))
          .statusCode,
      ).toBe(401);
    }
    const slowed = await Promise.all([
      bearer(server, 'one-more'),
      login(server, 'one-more'),
    ]);
    expect(slowed.map(({ statusCode }) => statusCode)).toEqual([429, 429]);
    expect(Number(slowed[0].headers['retry-after'])).toBeGreaterThan(0);
    // One line each, and not one for each of thousands.
    expect(lines).toHaveLength(FREE);
  });

  test('delays neither the right token nor clients at other addresses', async () => {
    const { server } = await startGuarded();
    for (let guess = 0; guess < FREE; guess += 1)
      await bearer(server, `guess-${guess}`);
    expect((await bearer(server, 'one-more')).statusCode).toBe(429);
    expect((await bearer(server, TOKEN)).statusCode).toBe(200);
    expect((await login(server, TOKEN)).statusCode).toBe(204);
    expect((await bearer(server, 'wrong', '203.0.113.2')).statusCode).toBe(401);
  });

  test('is not even compared beyond a bounded number of guesses a second', async () => {
    const { server } = await startGuarded();
    for (let guess = 0; guess < FREE; guess += 1)
      await bearer(server, `guess-${guess}`);
    const crowd = Array.from({ length: 200 }, (_, guess) =>
      bearer(server, `crowd-${guess}`),
    );
    const right = bearer(server, TOKEN);
    const answers = await Promise.all(crowd);
    expect(new Set(answers.map(({ statusCode }) => statusCode))).toEqual(
      new Set([429]),
    );
    expect((await right).statusCode).toBe(429);
    const elsewhere = await bearer(server, TOKEN, '203.0.113.2');
    expect([
      elsewhere.statusCode,
      (await bearer(server, TOKEN)).statusCode,
    ]).toEqual([200, 200]);
    expect(crowd.length).toBeGreaterThan(WAITING_MAX);
  });
});
