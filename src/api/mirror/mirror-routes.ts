/** `/mirror/status` and `/mirror/runs`: what the mirror knows of itself; runs are started, watched and cancelled. */
import { hash } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { sharedLoad } from '../../core/shared-load.ts';
import { describeRun, isOver } from '../../runs/run-document.ts';
import { RUN_KINDS, type RunDocument } from '../../runs/run-schema.ts';
import { type EventStreams, followChanges, goneSignal, limitOpen } from '../http/events.ts';
import { MIRROR_STATUS, type StatusStore } from '../http/ports.ts';
import { BY_ID, describeRoutes, named, nameSchemas, TEXT_OR_NULL, UUID } from '../http/routes.ts';
import { StatusError } from '../http/status-error.ts';
import { glance, type MirrorStatus } from './glance.ts';
import { FOLLOWING, type OrderKey, RUN_ORDER, type RunOrder, type RunOrders } from './start-runs.ts';

/** Counting a hundred thousand ledgers takes some tenths of a second: all who look share one count. */
const STATUS_MAX_AGE_MS = 5_000;
/** Who looks all the time, as the console does, does not wait for the next one. */
const STATUS_USABLE_MS = 10_000;
const LOG_LINES_MAX = 500;
const WAIT_SECONDS_MAX = 60;
const WAITERS_MAX = 64;
const RETRY_AFTER_SECONDS = 5;
const KEY = /^[\x21-\x7e]{1,200}$/;

const RUN = named('Run');
const LIST = {
  querystring: z.strictObject({
    kind: z.enum(RUN_KINDS).optional(),
    before: UUID.optional().describe('Only runs queued before this one: the next page.'),
    limit: z.int().min(1).max(500).default(50),
  }),
  response: { 200: z.object({ runs: z.array(RUN) }) },
};
const START = {
  description:
    'With an Idempotency-Key the same request starts one run, however often it is sent: 202 where it was queued now, 200 with the run that is there already.',
  body: named<RunOrder>('RunOrder'),
  response: { 200: RUN, 202: RUN },
};
const READ = {
  params: BY_ID,
  querystring: z.strictObject({ wait: z.int().min(0).max(WAIT_SECONDS_MAX).default(0) }),
  response: { 200: RUN },
};
const DIGITS = z.string().regex(/^\d{1,18}$/);
const LOGS = {
  params: BY_ID,
  querystring: z.strictObject({ after: DIGITS.default('0') }),
  response: { 200: z.object({ lines: z.array(z.looseObject({})), next: TEXT_OR_NULL }) },
};

/** Adds the route. @returns the shared reading of the status, for the metrics */
export function addStatus(server: FastifyInstance, store: StatusStore): () => Promise<MirrorStatus> {
  nameSchemas(server, { Status: MIRROR_STATUS });
  const status = sharedLoad(async () => glance(await store.facts()), STATUS_MAX_AGE_MS, STATUS_USABLE_MS);
  describeRoutes(server, 'mirror')(
    'GET /mirror/status',
    'Is the mirror whole, and as of when',
    { response: { 200: named('Status') } },
    () => status(),
  );
  return status;
}

export function addRuns(
  server: FastifyInstance,
  orders: RunOrders,
  store: StatusStore,
  streams: EventStreams,
): void {
  nameSchemas(server, { RunOrder: RUN_ORDER });
  const add = describeRoutes(server, 'mirror');
  const mayWait = limitOpen(WAITERS_MAX);
  add('GET /mirror/runs', 'Runs, newest first, with verdict and evidence', LIST, async ({ query }) => ({
    runs: (await store.runs(query)).map(describeRun),
  }));
  add('POST /mirror/runs', 'Start a run', START, async (request, reply) => {
    const { runId, isNew } = await orders.start(request.body, keyOf(request));
    const run = await findRun(store, runId);
    reply.code(isNew ? 202 : 200).header('location', `/mirror/runs/${runId}`);
    if (!isOver(run)) reply.header('retry-after', `${RETRY_AFTER_SECONDS}`);
    return reply.send(describeRun(run));
  });
  add(
    'GET /mirror/runs/:id',
    'One run; with `wait`, once it has ended or so many seconds have passed',
    READ,
    async ({ params: { id }, query: { wait } }, reply) => {
      const run = await findRun(store, id);
      if (wait === 0 || isOver(run)) return describeRun(run);
      if (!mayWait(reply)) {
        const state = `${WAITERS_MAX} requests wait already`;
        throw new StatusError('resourceExhausted', `${state}; ask without wait`);
      }
      return describeRun(await waitForEnd(store, run, wait * 1_000, reply));
    },
  );
  add(
    'GET /mirror/runs/:id/events',
    'A run as it goes on, as server-sent events',
    { params: BY_ID, produces: ['text/event-stream'] },
    async ({ params: { id } }, reply) => {
      await findRun(store, id);
      const read = async (): Promise<RunDocument & { progress: unknown }> => ({
        ...describeRun(await findRun(store, id)),
        progress: await orders.progress(id),
      });
      return streams.send(reply, (signal) => followChanges(read, FOLLOWING, signal));
    },
  );
  add('GET /mirror/runs/:id/logs', "A run's log lines, oldest first", LOGS, async ({ params, query }) => {
    const { lines, next = null } = await store.logs(params.id, LOG_LINES_MAX, query.after);
    return { lines, next };
  });
  add(
    'DELETE /mirror/runs/:id',
    'Cancel a run: 202 where it ends at its next safe point, 200 where it has ended',
    { params: BY_ID, response: { 200: RUN, 202: RUN } },
    async ({ params: { id } }, reply) => {
      await findRun(store, id);
      await orders.cancel(id);
      const run = await findRun(store, id);
      return reply.code(isOver(run) ? 200 : 202).send(describeRun(run));
    },
  );
}

async function waitForEnd(
  store: StatusStore,
  first: RunDocument,
  waitMs: number,
  reply: FastifyReply,
): Promise<RunDocument> {
  const signal = AbortSignal.any([goneSignal(reply), AbortSignal.timeout(waitMs)]);
  let run = first;
  for await (const now of followChanges(() => findRun(store, first.runId), FOLLOWING, signal)) run = now;
  return run;
}

async function findRun(store: StatusStore, id: string): Promise<RunDocument> {
  const run = await store.run(id);
  if (run === undefined) throw new StatusError('notFound', 'no run has this id');
  return run;
}

/** What was asked for is part of the key: the same key with another body is a mistake. */
function keyOf({
  headers,
  body,
}: Pick<FastifyRequest<{ Body: RunOrder }>, 'headers' | 'body'>): OrderKey | undefined {
  const name = headers['idempotency-key'];
  if (name === undefined) return undefined;
  if (typeof name !== 'string' || !KEY.test(name)) {
    const accepted = 'give 1 to 200 printable characters without blanks';
    throw new StatusError('invalidArgument', `Idempotency-Key: ${accepted}`);
  }
  const { kind, list, rebuild, deep } = body;
  return { name, hash: hash('sha256', JSON.stringify([kind, list, rebuild, deep])) };
}
