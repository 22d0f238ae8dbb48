/**
 * Counts the requests to the object store: `npm run bench -- store [PARTIES …]`, by
 * default for 1,000 and 10,000 parties. It counts, by kind, the requests that a mirror of
 * a sandbox network sends for an idle night, for an on-demand export and for a build of
 * the lake.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { openApp, type App } from '../src/app/app.ts';
import { readConfig } from '../src/config/environment.ts';
import { createLog } from '../src/logging/log.ts';
import { enqueueRun } from '../src/runs/enqueue.ts';
import { readRow } from '../src/postgres/run-statement.ts';
import { statement } from '../src/postgres/statement.ts';
import { exportOnDemand } from '../src/runs/export-on-demand.ts';
import type { Run } from '../src/runs/store/run-store.ts';
import { farSchedule } from '../test/support/far-schedule.ts';
import { type Sandbox, startSandbox } from '../test/support/sandbox.ts';
import { CREDENTIALS, S3Double } from '../test/support/stores/s3-double.ts';
import { sayGate, sayLoad } from './world/report.ts';
import { givenNumbers, openFolder } from './world/scratch-world.ts';

const given = givenNumbers();
const COUNTS = given.length === 0 ? [1_000, 10_000] : given;
const ENTRIES_MEAN = 3;
const DAY_MS = 24 * 3_600_000;
/**
 * Ledgers grow slowly here: an idle night finds nothing new, and even 10,000 parties
 * often have no entry in the source's last two minutes.
 */
const HISTORY_MS = 70 * DAY_MS;
const CHECKPOINT_INTERVAL_MS = DAY_MS / 24;
const NEWS_MS = 50 * DAY_MS;
/** Longer than the most recent minutes of the source, which a night requests again. */
const QUIET_STEP_MS = 180_000;
const QUIET_TRIES_MAX = 20;
const LOOK_MS = 50;
/**
 * Maximum number of requests in an idle night, not counting the pages of its one listing
 * and the segments that it proves again.
 */
const IDLE_NIGHT_MAX = 80;
const KEYS_A_PAGE = 1_000;
/**
 * A night proves one segment out of this many again, with one request for its object and
 * one for its manifest.
 */
const NIGHTLY_PARTS = 28;
const ORDER_MAX = 10;
/** Maximum number of requests for a build, whatever the number of parties. */
const BUILD_MAX = 60;
const { signal } = new AbortController();

sayLoad('before');
for (const parties of COUNTS) await measure(parties);
sayLoad('after');

async function measure(parties: number): Promise<void> {
  await using stack = new AsyncDisposableStack();
  const dataDir = await openFolder(stack);
  const store = stack.use(await S3Double.start());
  store.pageKeys = KEYS_A_PAGE;
  const sandbox = await startSandbox({
    parties,
    entriesMean: ENTRIES_MEAN,
    historyMs: HISTORY_MS,
    checkpointIntervalMs: CHECKPOINT_INTERVAL_MS,
    rateLimit: 'none',
  });
  stack.defer(() => sandbox.stop());
  const env = {
    SOURCE_URL: sandbox.url,
    SOURCE_RATE: '100000',
    DATA_DIR: dataDir,
    OBJECT_STORE_URL: `s3://bucket/mirror?region=us-east-1&endpoint=${store.endpoint}`,
    AWS_ACCESS_KEY_ID: CREDENTIALS.accessKeyId,
    AWS_SECRET_ACCESS_KEY: CREDENTIALS.secretAccessKey,
    SCHEDULE: farSchedule(),
  };
  const config = readConfig({ env, cwd: dataDir });
  const app = stack.use(
    await openApp({ config, log: createLog('warn'), signal }),
  );
  await app.jobWorker.startAndRegister();
  const count = async (what: string, most: Most, work: Work) => {
    store.calls.length = 0;
    await work();
    const { calls } = store;
    const lists = calls.filter((call) => call.includes('list-type'));
    sayGate(
      `${parties} parties: ${what}`,
      describe(calls),
      `at most ${most.requests}${most.lists === 0 ? ', no LIST' : ''}`,
      calls.length <= most.requests && lists.length <= most.lists,
    );
  };

  await reachQuiet(app, sandbox);
  const keys = [...store.objects.keys()].filter((key) =>
    key.startsWith('mirror/ledger/'),
  ).length;
  const pages = Math.ceil(keys / KEYS_A_PAGE);
  const proven = 2 * Math.ceil(keys / 2 / NIGHTLY_PARTS);
  const idle = IDLE_NIGHT_MAX + pages + proven;
  await count('an idle night', { requests: idle, lists: Infinity }, () =>
    night(app),
  );
  const [party] = sandbox.truth.parties();
  if (party === undefined) throw new Error('the sandbox has no party');
  const ordering = (): Promise<void> => order(app, party.id);
  await count(
    'an order, nothing new',
    { requests: ORDER_MAX, lists: 0 },
    ordering,
  );

  sandbox.advance(NEWS_MS);
  for (const { id } of [...sandbox.truth.parties()].slice(0, 20)) {
    await order(app, id);
  }
  const building = (): Promise<void> => load(app);
  await count(
    "a load of 20 parties' news and a build of the lake",
    { requests: BUILD_MAX, lists: Infinity },
    building,
  );
}

/** Maximum numbers of requests. */
interface Most {
  readonly requests: number;
  readonly lists: number;
}

type Work = () => Promise<void>;

/**
 * Runs nights until one leaves no rows in the range that is not closed yet. The next
 * night would request, publish and load such rows again, so it would not be idle.
 */
async function reachQuiet(app: App, sandbox: Sandbox): Promise<void> {
  const open = statement({ segments: 'int' })`
    select count(*)::int as segments from mirror.segments
    where status = 'current' and open`;
  for (let nights = 0; nights < QUIET_TRIES_MAX; nights += 1) {
    await night(app);
    const { segments } = await readRow(app.jobs.db, 'count open ranges', open);
    if (segments === 0) return;
    sandbox.advance(QUIET_STEP_MS);
  }
  throw new Error('the network was never quiet for two minutes');
}

/** Formats the requests by kind: "61: 3 GET list-type, 40 PUT, …" */
function describe(calls: readonly string[]): string {
  const kinds = new Map<string, number>();
  for (const call of calls) kinds.set(call, (kinds.get(call) ?? 0) + 1);
  const parts = [...kinds]
    .toSorted(([, one], [, other]) => other - one)
    .map(([kind, times]) => `${times} ${kind}`);
  return `${calls.length}: ${parts.join(', ')}`;
}

async function night(app: App): Promise<void> {
  const run = await app.jobs.runs.create({ kind: 'nightly', subject: 'now' });
  await enqueueRun(run, app.jobs);
  await ended(app, run);
}

async function load(app: App): Promise<void> {
  const subject = 'warehouse and lake';
  const run = await app.jobs.runs.create({ kind: 'load', subject });
  await enqueueRun(run, app.jobs);
  await ended(app, run);
}

async function ended(app: App, { runId }: Run): Promise<void> {
  for (;;) {
    const now = await app.jobs.runs.get(runId);
    if (now?.state === 'done') {
      if (now.verdict === 'complete') return;
      throw new Error(`${now.kind} ended ${now.verdict}`);
    }
    await sleep(LOOK_MS);
  }
}

/** Exports a party without loading it, because the load is measured separately. */
async function order(app: App, partyId: string): Promise<void> {
  const params = { load: false };
  const run = await app.jobs.runs.create({
    kind: 'export',
    subject: partyId,
    params,
  });
  const { verdict } = await exportOnDemand(run, app.jobs, signal);
  if (verdict !== 'complete') throw new Error(`an order ended ${verdict}`);
}
