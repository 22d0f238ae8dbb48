/** `/mirror/status` and `/mirror/runs`: what the mirror knows of itself. */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { sharedLoad } from '../../core/shared-load.ts';
import { describeRun } from '../../runs/run-document.ts';
import { RUN_KINDS } from '../../runs/run-schema.ts';
import { MIRROR_FACTS, type StatusStore } from '../http/ports.ts';
import { BY_ID, describeRoute, named, TEXT_OR_NULL, toJsonSchema, UUID } from '../http/schemas.ts';
import { glance, type MirrorStatus } from './glance.ts';

/** Counting a hundred thousand ledgers takes some tenths of a second: all who look share one count. */
const STATUS_MAX_AGE_MS = 5_000;
/** Who looks all the time, as the console does, does not wait for the next one. */
const STATUS_USABLE_MS = 10_000;
const LOG_LINES_MAX = 500;
const STATUS = MIRROR_FACTS.extend({
  whole: z.boolean(),
  complete: z.boolean(),
  hasNetwork: z.boolean(),
  sentence: z.string(),
  attention: z.array(z.looseObject({})),
});
const RUNS = z.strictObject({
  kind: z.enum(RUN_KINDS).optional(),
  before: UUID.optional().describe('Only runs queued before this one: the next page.'),
  limit: z.int().min(1).max(500).default(50),
});
const LOGS = z.strictObject({
  after: z
    .string()
    .regex(/^\d{1,18}$/)
    .default('0'),
});

/** Adds the routes. @returns the shared reading of the status, for the metrics */
export function addMirrorRoutes(server: FastifyInstance, store: StatusStore): () => Promise<MirrorStatus> {
  server.addSchema({ $id: 'Status', ...toJsonSchema(STATUS) });
  const status = sharedLoad(async () => glance(await store.facts()), STATUS_MAX_AGE_MS, STATUS_USABLE_MS);
  server.get(
    '/mirror/status',
    describeRoute('mirror', 'Is the mirror whole, and as of when', { response: { 200: named('Status') } }),
    () => status(),
  );
  server.get<{ Querystring: z.infer<typeof RUNS> }>(
    '/mirror/runs',
    describeRoute('mirror', 'Runs, newest first, with verdict and evidence', {
      querystring: RUNS,
      response: { 200: z.object({ runs: z.array(named('Run')) }) },
    }),
    async (request) => ({ runs: (await store.runs(request.query)).map(describeRun) }),
  );
  server.get<{ Params: { id: string }; Querystring: z.infer<typeof LOGS> }>(
    '/mirror/runs/:id/logs',
    describeRoute('mirror', "A run's log lines, oldest first", {
      params: BY_ID,
      querystring: LOGS,
      response: { 200: z.object({ lines: z.array(z.looseObject({})), next: TEXT_OR_NULL }) },
    }),
    async (request) => {
      const { lines, next } = await store.logs(request.params.id, LOG_LINES_MAX, request.query.after);
      return { lines, next: next ?? null };
    },
  );
  return status;
}
