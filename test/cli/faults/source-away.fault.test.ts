/** A source that is away for longer than a request is retried costs a night that time. */
import { expect, test } from 'vitest';
import { startSandbox } from '../../support/sandbox.ts';
import type { Misbehaviour, Route } from '../../support/sandbox-faults.ts';
import { openFreshDatabase } from '../../support/database.ts';
import { quarantineCodes } from '../../support/mirror-state.ts';
import { waitFor } from '../../support/wait-for.ts';
import { expectLedgers, expectLists } from '../expect-truth.ts';
import { openHome } from '../mirror-home.ts';

/** A request is sent five times, within about half a minute. */
const AWAY_MS = 45_000;

test.concurrent.each<[string, Route, Misbehaviour]>([
  [
    'answers 502 from the beginning',
    'parties',
    { answer: { status: 502, body: '<html>Bad Gateway</html>' } },
  ],
  [
    'answers 503 amid the exports',
    'export',
    { answer: { status: 503, body: '' } },
  ],
  ['resets connections amid the exports', 'export', { cutAfterBytes: 0 }],
])('a night whose source %s goes on where it was', async (_, route, broken) => {
  await using stack = new AsyncDisposableStack();
  const sandbox = stack.use(
    await startSandbox({ parties: 25, entriesMean: 20, rateLimit: 'none' }),
  );
  const database = stack.use(await openFreshDatabase());
  const home = stack.use(
    await openHome({ SOURCE_URL: sandbox.url, DATABASE_URL: database.url }),
  );
  let leftMs: number | undefined;
  sandbox.faults.add((request) => {
    const isTime = request.route === route && request.nth > 3;
    if (leftMs === undefined && (isTime || route === 'parties'))
      leftMs = performance.now();
    const isAway = leftMs !== undefined && performance.now() - leftMs < AWAY_MS;
    return isAway ? broken : undefined;
  });

  const night = home.start(['nightly', '--json']);
  await waitFor(() => leftMs !== undefined, { what: 'the source to go away' });
  const { code } = await night.end(undefined, 240_000);
  const document = JSON.parse(night.stdout) as {
    evidence: Readonly<Record<string, unknown>>;
  };
  expect([code, document.evidence['sourceWaits']]).toMatchObject([
    0,
    { times: expect.any(Number) as number },
  ]);
  expect(document.evidence).not.toHaveProperty('sourceAway');
  expect(await quarantineCodes(database.pool)).toEqual([]);
  await expectLists(database.pool, sandbox.truth);
  await expectLedgers(database.pool, sandbox.truth, home.objectsDir);
});
