/** `/mirror/status` and `/mirror/runs`: what the mirror knows of itself. */
import type { FastifyInstance } from 'fastify';
import { glance, type MirrorStatus } from './glance.ts';
import type { RunDocument, StatusStore } from '../http/ports.ts';
import { shared } from '../../core/shared.ts';
import { StatusError } from '../http/status-error.ts';

/** Counting a million rows takes a tenth of a second: all who look share one count. */
const STATUS_MAX_AGE_MS = 5_000;
const RUNS_DEFAULT = 50;
const RUNS_MAX = 500;
const LOG_LINES_MAX = 500;
const KINDS = ['walk', 'export', 'load', 'nightly', 'verify'];
const TAGS = ['mirror'];
const UUID = { type: 'string', format: 'uuid' } as const;
const TEXT_OR_NULL = { type: ['string', 'null'] } as const;
const OPEN_OBJECT = { type: 'object', additionalProperties: true } as const;

const RUN = {
  type: 'object',
  properties: {
    runId: UUID,
    parentRunId: TEXT_OR_NULL,
    kind: { type: 'string', enum: KINDS },
    subject: { type: 'string' },
    state: { type: 'string', enum: ['queued', 'running', 'done', 'cancelled'] },
    verdict: TEXT_OR_NULL,
    evidence: OPEN_OBJECT,
    queuedAt: { type: 'string' },
    startedAt: TEXT_OR_NULL,
    finishedAt: TEXT_OR_NULL,
    attempts: { type: 'integer' },
  },
} as const;

const STATUS = {
  type: 'object',
  properties: {
    whole: { type: 'boolean' },
    complete: { type: 'boolean' },
    sentence: { type: 'string' },
    attention: { type: 'array', items: OPEN_OBJECT },
    sourceUrl: TEXT_OR_NULL,
    epoch: { type: 'integer' },
    streams: {
      type: 'array',
      items: {
        type: 'object',
        properties: {
          name: { type: 'string' },
          verdict: TEXT_OR_NULL,
          checkedAt: TEXT_OR_NULL,
          asOfBlock: TEXT_OR_NULL,
          asOfTime: TEXT_OR_NULL,
          rows: { type: 'string' },
        },
      },
    },
    ledger: OPEN_OBJECT,
    coverage: OPEN_OBJECT,
    knownGaps: { type: 'string' },
    work: OPEN_OBJECT,
    openRuns: { type: 'string' },
    lastVerify: { type: ['object', 'null'], additionalProperties: true },
  },
} as const;

/** Adds the routes. @returns the shared reading of the status, for the metrics */
export function addMirrorRoutes(server: FastifyInstance, store: StatusStore): () => Promise<MirrorStatus> {
  const status = shared(async () => glance(await store.facts()), STATUS_MAX_AGE_MS);
  server.get(
    '/mirror/status',
    { schema: { tags: TAGS, summary: 'Is the mirror whole, and as of when', response: { 200: STATUS } } },
    () => status(),
  );
  server.get<{ Querystring: { kind?: string; before?: string; limit: number } }>(
    '/mirror/runs',
    {
      schema: {
        tags: TAGS,
        summary: 'Runs, newest first, with verdict and evidence',
        querystring: {
          type: 'object',
          properties: {
            kind: { type: 'string', enum: KINDS },
            before: { ...UUID, description: 'Only runs queued before this one: the next page.' },
            limit: { type: 'integer', minimum: 1, maximum: RUNS_MAX, default: RUNS_DEFAULT },
          },
          additionalProperties: false,
        },
        response: { 200: { type: 'object', properties: { runs: { type: 'array', items: RUN } } } },
      },
    },
    async (request): Promise<{ runs: readonly RunDocument[] }> => {
      const { kind, before, limit } = request.query;
      return { runs: await store.runs({ kind, before, rowsMax: limit }) };
    },
  );
  server.get<{ Params: { id: string } }>(
    '/mirror/runs/:id',
    {
      schema: {
        tags: TAGS,
        summary: 'One run',
        params: { type: 'object', properties: { id: UUID }, required: ['id'] },
        response: { 200: RUN },
      },
    },
    async (request) => {
      const run = await store.run(request.params.id);
      if (run === undefined) throw StatusError.ofGateway('notFound', 'no run has this id');
      return run;
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
        params: { type: 'object', properties: { id: UUID }, required: ['id'] },
        querystring: {
          type: 'object',
          properties: { after: { type: 'string', pattern: '^\\d{1,18}$', default: '0' } },
          additionalProperties: false,
        },
        response: {
          200: {
            type: 'object',
            properties: { lines: { type: 'array', items: OPEN_OBJECT }, next: TEXT_OR_NULL },
          },
        },
      },
    },
    async (request) => {
      const { lines, next } = await store.logs(request.params.id, LOG_LINES_MAX, request.query.after);
      return { lines, next: next ?? null };
    },
  );
}
