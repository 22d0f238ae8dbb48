/** `/mirror/status` and `/mirror/runs`: what the mirror knows of itself. */
import type { FastifyInstance } from 'fastify';
import { glance, type MirrorStatus } from './glance.ts';
import type { StatusStore } from '../http/ports.ts';
import { BY_ID, FLAG, OPEN_OBJECT, sent, taken, TEXT, TEXT_OR_NULL, UUID } from '../http/schemas.ts';
import type { RunKind } from '../../postgres/schema.ts';
import { type DescribedRun, describeRun, RUN_KINDS } from '../../runs/run-document.ts';
import { sharedLoad } from '../../core/shared-load.ts';

/** Counting a hundred thousand ledgers takes some tenths of a second: all who look share one count. */
const STATUS_MAX_AGE_MS = 5_000;
/** Who looks all the time, as the console does, does not wait for the next one. */
const STATUS_USABLE_MS = 10_000;
const RUNS_DEFAULT = 50;
const RUNS_MAX = 500;
const LOG_LINES_MAX = 500;
const TAGS = ['mirror'];
const STREAM = sent({
  name: TEXT,
  verdict: TEXT_OR_NULL,
  checkedAt: TEXT_OR_NULL,
  asOfBlock: TEXT_OR_NULL,
  asOfTime: TEXT_OR_NULL,
  rows: TEXT,
});
const STATUS = {
  $id: 'Status',
  ...sent(
    {
      whole: FLAG,
      complete: FLAG,
      sentence: TEXT,
      attention: { type: 'array', items: OPEN_OBJECT },
      sourceUrl: TEXT_OR_NULL,
      epoch: { type: 'integer' },
      streams: { type: 'array', items: STREAM },
      ledger: OPEN_OBJECT,
      coverage: OPEN_OBJECT,
      knownGaps: TEXT,
      lists: { type: 'array', items: OPEN_OBJECT },
      work: OPEN_OBJECT,
      openRuns: TEXT,
      lastVerify: { type: ['object', 'null'], additionalProperties: true },
    },
    ['lists', 'work'],
  ),
};

/** Adds the routes. @returns the shared reading of the status, for the metrics */
export function addMirrorRoutes(server: FastifyInstance, store: StatusStore): () => Promise<MirrorStatus> {
  server.addSchema(STATUS);
  const status = sharedLoad(async () => glance(await store.facts()), STATUS_MAX_AGE_MS, STATUS_USABLE_MS);
  server.get(
    '/mirror/status',
    {
      schema: {
        tags: TAGS,
        summary: 'Is the mirror whole, and as of when',
        response: { 200: { $ref: 'Status#' } },
      },
    },
    () => status(),
  );
  server.get<{ Querystring: { kind?: RunKind; before?: string; limit: number } }>(
    '/mirror/runs',
    {
      schema: {
        tags: TAGS,
        summary: 'Runs, newest first, with verdict and evidence',
        querystring: taken({
          kind: { type: 'string', enum: RUN_KINDS },
          before: { ...UUID, description: 'Only runs queued before this one: the next page.' },
          limit: { type: 'integer', minimum: 1, maximum: RUNS_MAX, default: RUNS_DEFAULT },
        }),
        response: { 200: sent({ runs: { type: 'array', items: { $ref: 'Run#' } } }) },
      },
    },
    async (request): Promise<{ runs: readonly DescribedRun[] }> => {
      const { kind, before, limit } = request.query;
      const runs = await store.runs({ kind, before, rowsMax: limit });
      return { runs: runs.map(describeRun) };
    },
  );
  addRunLogs(server, store);
  return status;
}

function addRunLogs(server: FastifyInstance, store: StatusStore): void {
  server.get<{ Params: { id: string }; Querystring: { after: string } }>(
    '/mirror/runs/:id/logs',
    {
      schema: {
        tags: TAGS,
        summary: "A run's log lines, oldest first",
        params: BY_ID,
        querystring: taken({ after: { type: 'string', pattern: '^\\d{1,18}$', default: '0' } }),
        response: { 200: sent({ lines: { type: 'array', items: OPEN_OBJECT }, next: TEXT_OR_NULL }) },
      },
    },
    async (request) => {
      const { lines, next } = await store.logs(request.params.id, LOG_LINES_MAX, request.query.after);
      return { lines, next: next ?? null };
    },
  );
}
