/** Whether the source still refuses the credentials of this process. */
import { expect, test } from 'vitest';
import { openSourceProof } from '../../src/app/source-proof.ts';
import { PermanentError, UnreachableError } from '../../src/errors/errors.ts';
import { RotatingSecret } from '../../src/network/rotating-secret.ts';
import type {
  Source,
  SourceCredentials,
} from '../../src/source/source-client.ts';

const REFUSED = permanent('SOURCE_FORBIDDEN');

test('a source that refuses both lists still refuses the credentials', async () => {
  const world = openWorld(REFUSED);
  await expect(world.prove()).rejects.toBe(REFUSED);
  expect(world.asked).toEqual(['parties', 'checkpoints']);
  expect(world.isRefused()).toBe(true);
});

test.each([
  [
    'cannot be reached',
    new UnreachableError('away', { code: 'SOURCE_UNREACHABLE' }),
  ],
  ['has no such list', permanent('SOURCE_ABSENT')],
])(
  'a source that %s is no longer known to refuse the credentials',
  async (_, failure) => {
    const world = openWorld(failure);
    await world.prove();
    expect(world.isRefused()).toBe(false);
  },
);

test('a 400 is a refusal only if a client certificate was sent', async () => {
  const plain = openWorld(permanent('SOURCE_REFUSED'));
  await plain.prove();
  expect(plain.isRefused()).toBe(false);
  const withOne = openWorld(permanent('SOURCE_REFUSED'), {
    certificate: { cert: 'a certificate', key: 'a key' },
  });
  await expect(withOne.prove()).rejects.toMatchObject({
    code: 'SOURCE_REFUSED',
  });
  expect(withOne.isRefused()).toBe(true);
});

test('the credentials are tried once a minute, so that the source does not ban the mirror', async () => {
  const world = openWorld(REFUSED);
  await expect(world.prove()).rejects.toBe(REFUSED);
  world.wait(59_000);
  await world.prove();
  expect(world.asked).toHaveLength(2);
  expect(world.isRefused()).toBe(true);
  world.wait(1_000);
  await expect(world.prove()).rejects.toBe(REFUSED);
  expect(world.asked).toHaveLength(4);
});

function permanent(code: string): PermanentError {
  return new PermanentError(code, { code });
}

/** Credentials that were refused, and a source that answers every page with `failure`. */
function openWorld(failure: Error, sent: Partial<SourceCredentials> = {}) {
  const first = {
    authorization: undefined,
    headers: undefined,
    certificate: undefined,
    ...sent,
  };
  const credentials = new RotatingSecret<SourceCredentials>(first, {
    name: 'SOURCE_AUTHORIZATION',
    read: undefined,
  });
  credentials.renew(first);
  const asked: string[] = [];
  let nowMs = 0;
  const lists: Pick<Source['lists'], 'page'> = {
    page: ({ list }) => {
      asked.push(list);
      return Promise.reject(failure);
    },
  };
  return {
    asked,
    prove: openSourceProof(lists, credentials, () => nowMs),
    isRefused: () => credentials.refusedForMs() !== undefined,
    wait: (forMs: number): void => {
      nowMs += forMs;
    },
  };
}
