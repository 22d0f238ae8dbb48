/**
 * A night that several workers share is one night: its cost is that of all of them
 * together.
 */
import { expect, test } from 'vitest';
import { startSandbox } from '../../support/sandbox.ts';
import { openFreshDatabase } from '../../support/database.ts';
import type { Child } from '../../support/process.ts';
import { waitFor } from '../../support/wait-for.ts';
import { openHome } from '../mirror-home.ts';

/** Lists and exports that this worker alone has asked for, by its own metrics. */
async function asked(
  worker: Child,
): Promise<{ lists: number; exports: number }> {
  const [, port] =
    /"port":(\d+)\},"msg":"Worker health served"/.exec(worker.stderr) ?? [];
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  const sum = (routes: string): number =>
    [
      ...text.matchAll(
        new RegExp(
          `_source_requests_total\\{route="(?:${routes})"[^}]*\\} (\\d+)`,
          'g',
        ),
      ),
    ].reduce((total, [, count]) => total + Number(count), 0);
  return { lists: sum('parties|checkpoints'), exports: sum('export') };
}

test('the evidence of a nightly run adds up the requests of both workers, and each has asked a part', async () => {
  await using sandbox = await startSandbox({
    parties: 30,
    entriesMean: 40,
    rateLimit: 'none',
  });
  await using database = await openFreshDatabase();
  await using home = await openHome({
    SOURCE_URL: sandbox.url,
    DATABASE_URL: database.url,
    SOURCE_EXPORT_CONCURRENCY: '2',
    WORKER_HEALTH_PORT: '0',
  });
  const workers = ['one', 'other'].map((name) =>
    home.start(['worker'], { SOURCE_AUTHORIZATION: name }),
  );
  await waitFor(
    () => workers.every((worker) => worker.stderr.includes('"Working"')),
    { what: 'both workers' },
  ).catch((error: unknown) => {
    const logs = workers.map(({ stderr }) => stderr).join('\n--\n');
    throw new Error(`The workers do not work:\n${logs}`, { cause: error });
  });
  // Until both have asked, one ledger at most is answered for each that is asked: the
  // place that gets free is given in turn.
  const seen = new Set<string | undefined>();
  const held: (() => void)[] = [];
  sandbox.faults.add(({ route, authorization }) => {
    if (route !== 'export') return undefined;
    seen.add(authorization);
    const { promise, resolve } = Promise.withResolvers<void>();
    held.push(resolve);
    while (held.length > 1 || (seen.size > 1 && held.length > 0))
      held.shift()?.();
    return { until: promise };
  });
  const { code, document } = await home.json(['nightly']);
  expect([code, document.verdict]).toEqual([0, 'complete']);
  const [first, second] = await Promise.all(workers.map(asked));
  expect([first?.exports, second?.exports]).not.toContain(0);
  const total = {
    lists: sandbox.requests.of('parties') + sandbox.requests.of('checkpoints'),
    exports: sandbox.requests.of('export'),
  };
  expect({
    lists: (first?.lists ?? 0) + (second?.lists ?? 0),
    exports: (first?.exports ?? 0) + (second?.exports ?? 0),
  }).toEqual(total);
  expect(document.evidence?.['source']).toMatchObject({
    requests: total,
    failures: 0,
  });
});
