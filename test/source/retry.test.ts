import { describe, expect, test } from 'vitest';
import { PermanentError, RetryableError } from '../../src/errors/errors.ts';
import { RETRY_RULES } from '../../src/source/failure.ts';
import {
  delayMs,
  LIST_RETRIES,
  type SourceRequest,
} from '../../src/source/requester.ts';
import {
  failureOf,
  InstantClock,
  NEVER,
  PARTY,
  PATIENT,
  testRequester,
  testSource,
} from './test-source.ts';
import { errorJson, pageJson, send, serve } from './wire/wire-server.ts';

const PAGE = { list: 'parties', newestFirst: true, size: 10 } as const;
const GOOD = pageJson('parties', [{ id: PARTY }]);
const REQUEST: SourceRequest = {
  route: 'parties',
  action: 'list',
  url: new URL('http://ledger.invalid'),
  limits: PATIENT,
  retries: LIST_RETRIES,
};

/** Fails so often with this answer, then sends a page. */
async function failing(
  times: number,
  status: number,
  body: string,
  headers: Record<string, string> = {},
) {
  return serve((_request, response, nth) => {
    if (nth <= times) send(response, status, body, headers);
    else send(response, 200, GOOD);
  });
}

describe('the retry of a request', () => {
  test.each([
    [500, errorJson(13, 'Internal error')],
    [502, '<html>Bad Gateway</html>'],
    [503, ''],
    [504, errorJson(4, 'DeadlineExceeded error')],
    [408, errorJson(1, 'Canceled error')],
    [429, errorJson(8, 'api request rate limit exceeded')],
    [599, 'what is this'],
  ])('%i %s', async (status, body) => {
    const server = await failing(2, status, body);
    const source = testSource(server.url);
    expect((await source.lists.page(PAGE, NEVER)).rows).toHaveLength(1);
    expect(
      source.requests.map((report) => [report.status, report.attempt]),
    ).toEqual([
      [status, 1],
      [status, 2],
      [200, 3],
    ]);
    const [first = 0, second = 0] = source.clock.slept;
    expect(second).toBeGreaterThanOrEqual(first);
    expect(source.waits.every((wait) => wait.reason === 'retry')).toBe(true);
  });

  test.each([
    [400, errorJson(3, 'InvalidArgument error'), 'SOURCE_REFUSED'],
    [401, '', 'SOURCE_UNAUTHORIZED'],
    [403, errorJson(7, 'PermissionDenied error'), 'SOURCE_FORBIDDEN'],
    [404, 'not here', 'SOURCE_ABSENT'],
    [407, '', 'SOURCE_UNAUTHORIZED'],
    [501, errorJson(12, 'Method Not Allowed'), 'SOURCE_REFUSED'],
    [500, errorJson(16, 'Unauthenticated error'), 'SOURCE_UNAUTHORIZED'],
  ])('not %i %s', async (status, body, code) => {
    const server = await failing(9, status, body);
    const error = await failureOf(
      testSource(server.url).lists.page({ ...PAGE, size: 1 }, NEVER),
    );
    expect(error).toBeInstanceOf(PermanentError);
    expect(error).toMatchObject({ code, meta: { status } });
    expect(server.asked).toHaveLength(1);
  });

  test('tells in the last error how often it tried and what came first', async () => {
    const server = await serve((_request, response, nth) =>
      nth === 1
        ? send(response, 503, 'first cause')
        : send(response, 500, errorJson(13, 'Internal error')),
    );
    const error = await failureOf(
      testSource(server.url).lists.page({ ...PAGE, size: 1 }, NEVER),
    );
    expect(error).toBeInstanceOf(RetryableError);
    expect(error).toMatchObject({
      code: 'SOURCE_STATUS',
      meta: {
        attempts: LIST_RETRIES.attemptsMax,
        status: 500,
        firstFailure: expect.stringContaining('first cause') as string,
      },
    });
    expect(String(error)).toMatch(/tried 5 times; the first time: .*503/);
    expect(server.asked).toHaveLength(LIST_RETRIES.attemptsMax);
  });

  test('ends with the unchanged reason of an abort, also amid a wait', async () => {
    const stop = new AbortController();
    const reason = new Error('stop now');
    const clock = {
      nowMs: () => 0,
      sleep: (_ms: number, signal: AbortSignal) =>
        new Promise<void>((_resolve, reject) => {
          signal.addEventListener('abort', () =>
            reject(signal.reason as Error),
          );
          stop.abort(reason);
        }),
    };
    const server = await failing(9, 503, '');
    expect(
      await failureOf(
        testSource(server.url, {}, { clock }).lists.page(PAGE, stop.signal),
      ),
    ).toBe(reason);
    expect(server.asked).toHaveLength(1);
    expect(
      await failureOf(testSource(server.url).lists.page(PAGE, stop.signal)),
    ).toBe(reason);
    expect(server.asked).toHaveLength(1);
  });

  test('ends by elapsed time before its attempts are used up', async () => {
    const clock = new InstantClock();
    let attempts = 0;
    const requester = testRequester(async () => {
      attempts += 1;
      await clock.sleep(60_000, NEVER);
      throw new RetryableError('slow', { code: 'SOURCE_STATUS' });
    }, clock);
    const retries = { ...LIST_RETRIES, elapsedMaxMs: 100_000, attemptsMax: 50 };
    const error = await failureOf(
      requester.open({ ...REQUEST, retries }, NEVER),
    );
    expect(error).toMatchObject({ meta: { attempts: 2 } });
    expect(attempts).toBe(2);
  });

  test('does not ask a source again that was closed meanwhile', async () => {
    const arrived = Promise.withResolvers<void>();
    const server = await serve(() => arrived.resolve());
    const source = testSource(server.url);
    const failure = failureOf(source.lists.page(PAGE, NEVER));
    await arrived.promise;
    await source.close();
    expect(await failure).toMatchObject({ code: 'SOURCE_CLOSED' });
    expect(await failureOf(source.lists.page(PAGE, NEVER))).toMatchObject({
      code: 'SOURCE_CLOSED',
    });
    expect(server.asked).toHaveLength(1);
  });

  test('does not repeat our own programming errors', async () => {
    let attempts = 0;
    const requester = testRequester(() => {
      attempts += 1;
      return Promise.reject(new TypeError('bug'));
    });
    await expect(requester.open(REQUEST, NEVER)).rejects.toThrow('bug');
    expect(attempts).toBe(1);
  });
});

describe('the wait between tries', () => {
  test('doubles each time up to the maximum, with a random share of half', () => {
    const rule = { minMs: 100, maxMs: 500, isCheap: true };
    expect(
      [1, 2, 3, 4, 9].map((failed) => delayMs(rule, failed, () => 1)),
    ).toEqual([100, 200, 400, 500, 500]);
    expect(
      [1, 2, 3, 4, 9].map((failed) => delayMs(rule, failed, () => 0)),
    ).toEqual([50, 100, 200, 250, 250]);
    for (const known of Object.values(RETRY_RULES))
      expect(known?.minMs).toBeLessThanOrEqual(known?.maxMs ?? 0);
  });

  test.each([
    ['Retry-After', '20'],
    ['RateLimit-Retry-After', '20'],
  ])('%s in seconds is a lower bound', async (name, value) => {
    const server = await failing(1, 503, '', { [name]: value });
    const source = testSource(server.url);
    await source.lists.page(PAGE, NEVER);
    expect(source.clock.slept).toEqual([20_000]);
  });

  test('follows a Retry-After that is a date', async () => {
    const server = await failing(1, 503, '', {
      'Retry-After': new Date(Date.now() + 100_000).toUTCString(),
    });
    const source = testSource(server.url);
    await source.lists.page(PAGE, NEVER);
    expect(source.clock.slept[0]).toBeGreaterThan(30_000);
    expect(source.clock.slept[0]).toBeLessThanOrEqual(100_000);
  });

  test.each(['soon', '-5', '0', 'Thu, 01 Jan 1970 00:00:00 GMT'])(
    'Retry-After %j changes nothing',
    async (value) => {
      const server = await failing(1, 503, '', { 'Retry-After': value });
      const source = testSource(server.url);
      await source.lists.page(PAGE, NEVER);
      expect(source.clock.slept[0]).toBeLessThanOrEqual(2_000);
    },
  );

  test('puts the job off instead of sleeping for ten hours', async () => {
    const server = await failing(1, 429, errorJson(8, 'slow down'), {
      'Retry-After': '36000',
    });
    const source = testSource(server.url);
    const error = await failureOf(source.lists.page(PAGE, NEVER));
    expect(error).toMatchObject({
      code: 'SOURCE_RATE_LIMITED',
      retryAfterMs: 36_000_000,
    });
    expect(source.clock.slept).toEqual([]);
  });
});

describe('a ban by the source', () => {
  const banned = errorJson(
    7,
    'temporarily banned for continuing to request while rate limited',
  );

  test('is waited out where it is short', async () => {
    const server = await failing(1, 403, banned, {
      'RateLimit-Retry-After': '200',
    });
    const source = testSource(server.url);
    await source.lists.page(PAGE, NEVER);
    expect(source.clock.slept[0]).toBe(200_000);
    expect(source.requests[0]).toMatchObject({
      status: 403,
      errorCode: 'SOURCE_BANNED',
    });
  });

  test('is known to every worker where it is long, and no worker asks meanwhile', async () => {
    const server = await failing(1, 403, banned, {
      'RateLimit-Retry-After': '600',
    });
    const stored: bigint[] = [];
    const bans = {
      get: () => Promise.resolve(stored.at(-1)),
      set: (until: bigint) => Promise.resolve(void stored.push(until)),
    };
    const one = testSource(server.url, {}, { bans });
    const other = testSource(server.url, {}, { bans });
    const error = await failureOf(one.lists.page(PAGE, NEVER));
    expect(error).toMatchObject({
      code: 'SOURCE_BANNED',
      retryAfterMs: 600_000,
    });
    const untilMs = Number((stored[0] ?? 0n) / 1000n) - Date.now();
    expect(untilMs).toBeGreaterThan(500_000);
    expect(untilMs).toBeLessThanOrEqual(600_000);
    for (const source of [one, other]) {
      expect(await failureOf(source.lists.page(PAGE, NEVER))).toMatchObject({
        code: 'SOURCE_BANNED',
      });
    }
    expect(server.asked).toHaveLength(1);
  });
});
