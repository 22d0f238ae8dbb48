/**
 * The routes for the console's own data. They are not a public API, and may change
 * together with the page.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import { formatPlural } from '../../format/format.js';
import { exportKey } from '../../runs/progress.ts';
import { followEvents, goneSignal } from '../kit/events.ts';
import type { ConsoleDeps, ConsoleParts, Upkeep } from './ports.ts';
import { BY_ID, openRoutes } from '../kit/routes.ts';
import { StatusError } from '../kit/status-error.ts';
import { unitColumns } from '../../lake/query/chart-units.ts';
import type { FirstRunPreview } from '../../runs/nightly/nightly-preview.ts';
import type { Attention, MirrorStatus } from '../../status/status-summary.ts';
import { FILE, FILE_TYPES, QUESTION } from './lake-queries.ts';
import * as work from './store/work-statements.ts';

/**
 * How long a history is reused. Summing a million segments is slow, so all readers share
 * the result.
 */
const HISTORY_MAX_AGE_MS = 1_500;
const LINES_MAX_AGE_MS = 1_000;
const EVERY_MS = 500;
/**
 * Maximum time between two snapshots. The page's code does not see heartbeats, so it
 * needs snapshots to know that the connection is alive.
 */
const SILENT_MS_MAX = 5_000;
const DISK_PARTS_MIN = 20n;
/**
 * These are POST requests only because SQL does not fit in an address. They change
 * nothing, so the read token may send them.
 */
const ASKED = { body: QUESTION, onlyReads: true };
const ASKED_FILE = { ...ASKED, querystring: FILE };
const NOTHING = z.strictObject({});
const QUARANTINED_QUESTION = z.strictObject({
  limit: z.int().min(1).max(1_000),
});

/**
 * Adds the routes. They do not restrict the SQL of a query themselves: the process that
 * runs it can only read the lake.
 */
export function addConsoleData(
  server: FastifyInstance,
  { rows, jobs, console: parts }: ConsoleDeps,
): void {
  const { lake } = parts;
  const add = openRoutes(server);
  const history = sharedLoad(async () => {
    const [growth, nightlyRuns] = await Promise.all([
      rows('read how the mirror grew', work.GROWTH),
      rows('read the nightly runs', work.NIGHTLY_RUNS),
    ]);
    return { growth, nightlyRuns };
  }, HISTORY_MAX_AGE_MS);
  const lines = sharedLoad(
    () => rows('read the time lines of ledgers', work.LINES),
    LINES_MAX_AGE_MS,
  );
  add('GET /console/history', {}, () => history());
  add('GET /console/lines', {}, async () => ({ lines: await lines() }));
  add('GET /console/settings', {}, () => ({ settings: parts.settings }));
  add('GET /console/assets', {}, () => ({ assets: parts.assets }));
  add('GET /console/access', {}, ({ role, hasLogin }) => ({
    role,
    hasLogin,
  }));
  add('GET /console/preview', {}, () => parts.preview());
  // This is a POST because it makes the mirror send requests to the source, which the
  // read token does not permit.
  add('POST /console/look', { body: NOTHING }, () =>
    lookAtSource(parts, jobs.source !== undefined),
  );
  add('POST /console/test-notice', { body: NOTHING }, async () => {
    const results = await parts.testNotices();
    if (results.length === 0)
      throw new StatusError('failedPrecondition', 'NOTIFY_URL is not set');
    return { results };
  });
  add(
    'GET /console/quarantined',
    { querystring: QUARANTINED_QUESTION },
    async ({ query: { limit } }) => ({
      exports: await rows('list what was quarantined', work.quarantined(limit)),
    }),
  );
  add('GET /console/runs/:id/costs', { params: BY_ID }, async ({ params }) => ({
    stages: await work.readCosts(rows, params.id),
  }));
  add('GET /console/tables', {}, async () => ({ tables: await lake.tables() }));
  add('GET /console/questions', {}, () => ({ questions: lake.questions }));
  add('POST /console/query', ASKED, async ({ body }, reply) => {
    const answer = await lake.ask(body, goneSignal(reply));
    return { ...answer, units: unitsOf(Object.keys(answer.rows[0] ?? {})) };
  });
  add(
    'POST /console/query/file',
    ASKED_FILE,
    async ({ body, query: { format } }, reply) => {
      const file = await lake.file(body, format, goneSignal(reply));
      // The file is named after the question and today's date.
      const asked = 'question' in body ? body.question : 'query';
      const fileName = `${asked}-${new Date().toISOString().slice(0, 10)}.${format}`;
      reply.headers({
        'content-type': FILE_TYPES[format],
        'content-disposition': `attachment; filename="${fileName}"`,
      });
      return reply.send(file);
    },
  );
}

/**
 * Estimates the first nightly run from the source's own lists.
 * @throws StatusError if the source does not answer, or if the lists have already been
 *   read: the mirror's own preview is then exact
 */
async function lookAtSource(
  parts: ConsoleParts,
  hasSource: boolean,
): Promise<FirstRunPreview> {
  if (!hasSource)
    throw new StatusError('unavailable', 'this process has no SOURCE_URL');
  const { isFirst } = await parts.preview();
  if (!isFirst)
    throw new StatusError(
      'failedPrecondition',
      'the lists were read before, so the mirror estimates without a look',
    );
  try {
    return await parts.look();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new StatusError(
      'unavailable',
      `the look at the source failed: ${reason}`,
      [],
      error,
    );
  }
}

/** Returns the columns that name the unit of each figure that has one. */
function unitsOf(
  names: readonly string[],
): Readonly<Record<string, readonly string[]>> {
  const units = names.map((name) => [name, unitColumns(names, name)] as const);
  return Object.fromEntries(units.filter(([, columns]) => columns.length > 0));
}

/**
 * Adds `/console/events`. All open pages share one snapshot of the live state, and
 * receive it whenever it has changed.
 */
export function addConsoleFeed(
  server: FastifyInstance,
  { rows, console: parts, jobs: { progress } }: ConsoleDeps,
  status: () => Promise<MirrorStatus>,
): void {
  const { everyMs = EVERY_MS } = parts;
  const snapshot = sharedLoad(async () => {
    const [facts, known, upkeep] = await Promise.all([
      work.readLive(rows),
      status(),
      parts.upkeep(),
    ]);
    const { openRuns, inFlight, ...others } = facts;
    const own = [idleAttention(facts), diskAttention(upkeep)].filter(
      (one) => one !== null,
    );
    const live = openRuns.map(async (run) => ({
      ...run,
      progress: run.state === 'running' ? await progress.read(run.runId) : [],
    }));
    const exports = inFlight.map(async (ledger) => ({
      ...ledger,
      progress: await progress.read(exportKey(ledger.partyId)),
    }));
    return {
      ...others,
      status: { ...known, attention: [...known.attention, ...own] },
      nextNightlyRun: known.nights.nextAt,
      upkeep: { ...upkeep, nextAudit: known.nights.nextAuditAt },
      live: await Promise.all(live),
      inFlight: await Promise.all(exports),
    };
  }, everyMs / 2);
  const textOf = (found: object): string =>
    JSON.stringify({ ...found, now: undefined });
  const following = { everyMs, textOf, silentMsMax: SILENT_MS_MAX };
  openRoutes(server)('GET /console/events', {}, (_request, reply) =>
    followEvents(reply, snapshot, following),
  );
}

/** Warns before the disk becomes too full for the spool of an export. */
function diskAttention({ diskFreeBytes, diskBytes }: Upkeep): Attention | null {
  if (diskFreeBytes === null || diskBytes === null) return null;
  if (BigInt(diskFreeBytes) * DISK_PARTS_MIN >= BigInt(diskBytes)) return null;
  return {
    what: 'the disk of DATA_DIR is nearly full',
    why: `less than one part in ${DISK_PARTS_MIN} of it is free`,
    todo:
      'Make room, or move DATA_DIR to a larger disk: exports are written there ' +
      'before they are published.',
  };
}

/**
 * Reports that work is waiting but no worker is running, which is the first thing an
 * operator must know. A long queue by itself is not reported.
 */
function idleAttention({
  workers,
  openRuns,
}: work.LiveFacts): Attention | null {
  const waiting = openRuns.filter(
    (run) => run.state === 'queued' && run.parentRunId === null,
  ).length;
  if (workers > 0 || waiting === 0) return null;
  return {
    what:
      `${formatPlural(waiting, 'run waits', 'runs wait')} and no worker is ` +
      'running',
    why: 'work is queued, and no process is taking it',
    todo: 'Start `ledger-mirror worker` (or `ledger-mirror up`) with the same settings.',
  };
}
