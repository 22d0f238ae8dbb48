/** The console's own data. Not an interface for others: it may change with the page. */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import type { ShownSetting } from '../../config/secrets.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import type { Rows } from '../../postgres/rows.ts';
import type { NightlyPreview } from '../../runs/nightly/nightly-preview.ts';
import { goneSignal } from '../http/events.ts';
import { BY_ID, openRoutes } from '../http/routes.ts';
import { FILE, FILE_TYPES, type LakeQueries, QUESTION } from './lake-queries.ts';
import { GROWTH, LINES, NIGHTLY_RUNS, QUARANTINED, readCosts } from './store/work-statements.ts';

/** Summing up a million segments takes a moment: all who look share it. */
const HISTORY_MAX_AGE_MS = 1_500;
const LINES_MAX_AGE_MS = 1_000;
const QUARANTINED_QUESTION = z.strictObject({ limit: z.int().min(1).max(1_000) });

/** What the console needs from the rest of the mirror, beside what the read API has anyway. Times are RFC 3339. */
export interface ConsoleParts {
  readonly lake: LakeQueries;
  readonly settings: readonly ShownSetting[];
  /** The next time the schedule fires; null where nothing is scheduled. */
  nextNightlyRun(): string | null;
  /** What a nightly run that began now would ask the source. */
  preview(): Promise<NightlyPreview>;
  upkeep(): Promise<Upkeep>;
}

/** What an operator looks after beside the runs. */
export interface Upkeep {
  /** Jobs that wait in the queues; null where they cannot be asked. */
  readonly jobsWaiting: number | null;
  /** Of the one that waits the longest, in seconds. */
  readonly oldestSeconds: number;
  /** When the lists are next read again from their oldest row; null where nothing is scheduled. */
  readonly nextAudit: string | null;
  /** Where DATA_DIR lies; decimal text, null where it cannot be told. */
  readonly diskFreeBytes: string | null;
  readonly diskBytes: string | null;
}

/** Adds the routes. What a statement to the lake may do is decided where it runs: it reads the lake and nothing else. */
export function addConsoleData(server: FastifyInstance, parts: ConsoleParts, rows: Rows): void {
  const { lake } = parts;
  const add = openRoutes(server);
  const history = sharedLoad(async () => {
    const [growth, nightlyRuns] = await Promise.all([
      rows('read how the mirror grew', GROWTH),
      rows('read the nightly runs', NIGHTLY_RUNS),
    ]);
    return { growth, nightlyRuns };
  }, HISTORY_MAX_AGE_MS);
  const lines = sharedLoad(() => rows('read the time lines of ledgers', LINES), LINES_MAX_AGE_MS);
  add('GET /console/history', {}, () => history());
  add('GET /console/lines', {}, async () => ({ lines: await lines() }));
  add('GET /console/settings', {}, () => ({ settings: parts.settings }));
  add('GET /console/preview', {}, () => parts.preview());
  add('GET /console/quarantined', { querystring: QUARANTINED_QUESTION }, async ({ query: { limit } }) => ({
    exports: await rows('list what was quarantined', QUARANTINED, [limit]),
  }));
  add('GET /console/runs/:id/costs', { params: BY_ID }, async ({ params }) => ({
    stages: await readCosts(rows, params.id),
  }));
  add('GET /console/tables', {}, async () => ({ tables: await lake.tables() }));
  add('GET /console/questions', {}, () => ({ questions: lake.questions }));
  add('POST /console/query', { body: QUESTION }, ({ body }, reply) => lake.ask(body, goneSignal(reply)));
  add(
    'POST /console/query/file',
    { body: QUESTION, querystring: FILE },
    async ({ body, query: { format } }, reply) => {
      const file = await lake.file(body, format, goneSignal(reply));
      // What was asked, and the day of the answer.
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
