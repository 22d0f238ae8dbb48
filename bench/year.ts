/**
 * Simulates a year of nights with a simulated clock: `npm run bench -- year [PARTIES]
 * [NIGHTS] [DAYS]`; by default 50 parties, and 365 nights one day apart. Prints the
 * number of rows in each table by month, the remaining segments of each party, and the
 * contents of the store.
 */
import { openApp } from '../src/app/app.ts';
import { readConfig } from '../src/config/environment.ts';
import { createLog } from '../src/logging/log.ts';
import { farSchedule } from '../test/support/far-schedule.ts';
import {
  closedSegments,
  countRows,
  passNight,
  startBusyNetwork,
} from '../test/support/measure/simulated-nights.ts';
import { atMost, say, sayGate, sayLoad, sayNumber } from './world/report.ts';
import { givenNumbers, openFolder } from './world/scratch-world.ts';

const [PARTIES = 50, NIGHTS = 365, DAYS = 1] = givenNumbers();
const SEGMENTS_A_YEAR_MAX = 12;
const MONTH_DAYS = 30;
const signal = new AbortController().signal;

await using stack = new AsyncDisposableStack();
const dataDir = await openFolder(stack);
const sandbox = stack.use(await startBusyNetwork(PARTIES));
const env = {
  SOURCE_URL: sandbox.url,
  DATA_DIR: dataDir,
  SOURCE_RATE: '100000',
  SOURCE_EXPORT_CONCURRENCY: '4',
  // The retention of the lake's files uses the machine's clock.
  LAKE_RETENTION: '1m',
  SCHEDULE: farSchedule(),
};
const config = readConfig({ env, cwd: dataDir });
const app = stack.use(
  await openApp({ config, log: createLog('warn'), signal }),
);
await app.jobWorker.startAndRegister();

async function countObjects(): Promise<ReadonlyMap<string, number>> {
  const counts = new Map<string, number>();
  for (const prefix of ['ledger/', 'coverage/', 'lake/', 'runs/'])
    for await (const _ of app.store.list(prefix, signal))
      counts.set(
        `objects under \`${prefix}\``,
        (counts.get(`objects under \`${prefix}\``) ?? 0) + 1,
      );
  return counts;
}

sayLoad('before');
const startedMs = performance.now();
const columns: {
  readonly month: string;
  readonly counts: ReadonlyMap<string, number>;
}[] = [];
const verdicts = new Map<string, number>();
let merged = 0;
for (let night = 1; night <= NIGHTS; night += 1) {
  const run = await passNight(app, sandbox, DAYS);
  verdicts.set(
    String(run.verdict),
    (verdicts.get(String(run.verdict)) ?? 0) + 1,
  );
  merged += Number(
    (run.evidence['merged'] as { segments?: string } | undefined)?.segments ??
      0,
  );
  const isMonthOver = (night * DAYS) % MONTH_DAYS < DAYS;
  if (!isMonthOver && night !== NIGHTS) continue;
  const counts = new Map([
    ...(await countRows(app)),
    ...(await countObjects()),
  ]);
  columns.push({ month: `day ${night * DAYS}`, counts });
  const tookSeconds = ((performance.now() - startedMs) / 1_000).toFixed(0);
  process.stderr.write(
    `day ${night * DAYS}, ${tookSeconds} s: ${JSON.stringify(Object.fromEntries(counts))}\n`,
  );
}
const seconds = (performance.now() - startedMs) / 1_000;
const verify = await app.jobs.stages.verify(
  { runId: crypto.randomUUID(), deep: true, scope: 'whole' },
  { signal, onProgress: () => undefined },
);
const kept = await closedSegments(app);
sayGate(
  `${NIGHTS} nights of ${PARTIES} parties, days between them: ${DAYS}`,
  `${seconds.toFixed(0)} s, verdicts ${JSON.stringify(Object.fromEntries(verdicts))}`,
  'all complete',
  verdicts.get('complete') === NIGHTS,
);
say('segments merged', String(merged));
const segmentsMost = Math.max(...kept.map(({ segments }) => segments));
sayNumber(
  'closed segments of a party and year, at most',
  segmentsMost,
  String(segmentsMost),
  atMost(
    SEGMENTS_A_YEAR_MAX + MONTH_DAYS,
    `: ${SEGMENTS_A_YEAR_MAX}, and the days of the month that goes on`,
  ),
);
sayGate(
  'objects, table and lake compared by their sums',
  verify.verdict,
  'complete',
  verify.verdict === 'complete',
);
sayLoad('after');

const names = [
  ...new Set(columns.flatMap(({ counts }) => [...counts.keys()])),
].filter((name) => columns.some(({ counts }) => (counts.get(name) ?? 0) > 0));
const line = (...cells: readonly unknown[]): void => {
  process.stdout.write(`| ${cells.join(' | ')} |\n`);
};
process.stdout.write('\n');
line('rows', ...columns.map(({ month }) => month));
line('---', ...columns.map(() => '--:'));
for (const name of names)
  line(name, ...columns.map(({ counts }) => counts.get(name) ?? 0));
