import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { keepServer } from '../../src/embedded/keeper.ts';
import { waitFor } from '../support/wait-for.ts';

const boundLog = (): void => undefined;
const LIMITS = { lookEveryMs: 1, restartsMax: 3, windowMs: 60_000 };

function recorder(): { said: string[]; warn: (fields: unknown, text: string) => void } {
  const said: string[] = [];
  return { said, warn: (_, text) => void said.push(text) };
}

test('a server that lives is left alone, one that dies is started again', async () => {
  const log = recorder();
  let isGone = false;
  let restarts = 0;
  const restart = async (): Promise<void> => {
    restarts += 1;
    isGone = false;
  };
  await using keeper = keepServer({ isGone: () => isGone, restart, boundLog }, log as never, LIMITS);
  await sleep(20);
  expect(restarts).toBe(0);
  isGone = true;
  await waitFor(() => restarts === 1, { what: 'a restart' });
  await sleep(20);
  expect(restarts).toBe(1);
  await keeper[Symbol.asyncDispose]();
  isGone = true;
  await sleep(20);
  expect(restarts).toBe(1);
});

test('a server that keeps dying or does not start is tried a few times, then left, and each try is logged', async () => {
  const log = recorder();
  let restarts = 0;
  const restart = (): Promise<void> => {
    restarts += 1;
    return Promise.reject(new Error('no room'));
  };
  await using keeper = keepServer({ isGone: () => true, restart, boundLog }, log as never, LIMITS);
  await waitFor(() => log.said.at(-1)?.endsWith('left alone') === true, { what: 'an end' });
  await keeper[Symbol.asyncDispose]();
  expect(restarts).toBe(3);
  expect(log.said.filter((text) => text.includes('could not be started'))).toHaveLength(3);
});

test('a restart under way ends with its holder', async () => {
  const log = recorder();
  let isUnderWay = false;
  const restart = (signal: AbortSignal): Promise<void> => {
    isUnderWay = true;
    return new Promise((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    });
  };
  const keeper = keepServer({ isGone: () => true, restart, boundLog }, log as never, LIMITS);
  await waitFor(() => isUnderWay, { what: 'a restart' });
  await keeper[Symbol.asyncDispose]();
  expect(log.said).toEqual([]);
});
