/** The status of the mirror is read before the first viewer asks for it. */
import { expect, test } from 'vitest';
import type { MirrorFacts } from '../../../src/status/mirror-facts.ts';
import { apiWithoutDatabase, EMPTY_FACTS, EMPTY_STATUS } from '../mirror.ts';

/** Builds a server whose readings of the facts are these, one after another. */
async function serverWith(readings: (() => Promise<MirrorFacts>)[]) {
  return apiWithoutDatabase({
    status: {
      ...EMPTY_STATUS,
      facts: async () => {
        const next = readings.shift();
        if (next === undefined) throw new Error('one reading too many');
        return next();
      },
    },
  });
}

test('the first viewer gets the status that was read while the server was built', async () => {
  const readings = [async () => EMPTY_FACTS];
  await using server = await serverWith(readings);
  expect(readings).toHaveLength(0);
  const { statusCode } = await server.inject('/mirror/status');
  expect(statusCode).toBe(200);
});

test('a reading ahead that fails is no error of the first viewer', async () => {
  await using server = await serverWith([
    () => Promise.reject(new Error('the database restarts')),
    async () => EMPTY_FACTS,
  ]);
  const { statusCode } = await server.inject('/mirror/status');
  expect(statusCode).toBe(200);
});
