/** `POST /mirror/runs` and what follows it: a run is started, waited for, watched and cancelled over HTTP. */
import { hash } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { describeRun, isOver, type RunDocument } from '../../runs/run-document.ts';
import { EventStreams } from '../http/answer/events.ts';
import { goneSignal } from '../http/answer/gone.ts';
import type { StatusStore } from '../http/ports.ts';
import { BY_ID, type ById, describeRoute, named, toJsonSchema } from '../http/schemas.ts';
import { StatusError } from '../http/status-error.ts';
import { followRun } from './follow-run.ts';
import { type OrderKey, RUN_ORDER, type RunOrder, type RunStarts } from './start-runs.ts';

const RUN = named('Run');
const KEY = /^[\x21-\x7e]{1,200}$/;
const WAIT_SECONDS_MAX = 60;
const WAITERS_MAX = 64;
const RETRY_AFTER_SECONDS = 5;
const WAIT = z.strictObject({ wait: z.int().min(0).max(WAIT_SECONDS_MAX).default(0) });

export type RunOrders = Pick<RunStarts, keyof RunStarts>;

export function addRunOrders(server: FastifyInstance, orders: RunOrders, store: StatusStore): void {
  server.addSchema({ $id: 'RunOrder', ...toJsonSchema(RUN_ORDER) });
  server.post<{ Body: RunOrder }>(
    '/mirror/runs',
    describeRoute('mirror', 'Start a run', {
      description:
        'With an Idempotency-Key the same request starts one run, however often it is sent: 202 where it was queued now, 200 with the run that is there already.',
      body: named('RunOrder'),
      response: { 200: RUN, 202: RUN },
    }),
    async (request, reply) => {
      const { runId, isNew } = await orders.start(request.body, keyOf(request));
      const run = await findRun(store, runId);
      reply.code(isNew ? 202 : 200).header('location', `/mirror/runs/${runId}`);
      if (!isOver(run)) reply.header('retry-after', `${RETRY_AFTER_SECONDS}`);
      return reply.send(describeRun(run));
    },
  );
  addWatching(server, orders, store);
  server.delete(
    '/mirror/runs/:id',
    describeRoute(
      'mirror',
      'Cancel a run: 202 where it ends at its next safe point, 200 where it has ended',
      {
        params: BY_ID,
        response: { 200: RUN, 202: RUN },
      },
    ),
    async (request: ById, reply) => {
      const { id } = request.params;
      await findRun(store, id);
      await orders.cancel(id);
      const run = await findRun(store, id);
      return reply.code(isOver(run) ? 200 : 202).send(describeRun(run));
    },
  );
}

function addWatching(server: FastifyInstance, orders: RunOrders, store: StatusStore): void {
  const streams = new EventStreams();
  let waiters = 0;
  server.get<{ Params: { id: string }; Querystring: z.infer<typeof WAIT> }>(
    '/mirror/runs/:id',
    describeRoute('mirror', 'One run; with `wait`, once it has ended or so many seconds have passed', {
      params: BY_ID,
      querystring: WAIT,
      response: { 200: RUN },
    }),
    async (request, reply) => {
      const { id } = request.params;
      const run = await findRun(store, id);
      if (request.query.wait === 0 || isOver(run)) return describeRun(run);
      if (waiters >= WAITERS_MAX) {
        throw StatusError.ofGateway(
          'resourceExhausted',
          `${WAITERS_MAX} requests wait already; ask without wait`,
        );
      }
      waiters += 1;
      try {
        return describeRun(await untilOver(store, run, request.query.wait * 1_000, reply));
      } finally {
        waiters -= 1;
      }
    },
  );
  server.get(
    '/mirror/runs/:id/events',
    describeRoute('mirror', 'A run as it goes on, as server-sent events', {
      params: BY_ID,
      produces: ['text/event-stream'],
    }),
    async (request: ById, reply) => {
      const { id } = request.params;
      await findRun(store, id);
      const read = async (): Promise<RunDocument & { progress: unknown }> => ({
        ...describeRun(await findRun(store, id)),
        progress: await orders.progress(id),
      });
      return streams.send(reply, (signal) => followRun(read, signal));
    },
  );
}

async function untilOver(
  store: StatusStore,
  first: RunDocument,
  waitMs: number,
  reply: FastifyReply,
): Promise<RunDocument> {
  const signal = AbortSignal.any([goneSignal(reply), AbortSignal.timeout(waitMs)]);
  let run = first;
  for await (const now of followRun(() => findRun(store, first.runId), signal)) run = now;
  return run;
}

async function findRun(store: StatusStore, id: string): Promise<RunDocument> {
  const run = await store.run(id);
  if (run === undefined) throw StatusError.ofGateway('notFound', 'no run has this id');
  return run;
}

/** What was asked for is part of the key: the same key with another body is a mistake. */
function keyOf({ headers, body }: FastifyRequest<{ Body: RunOrder }>): OrderKey | undefined {
  const name = headers['idempotency-key'];
  if (name === undefined) return undefined;
  if (typeof name !== 'string' || !KEY.test(name)) {
    throw StatusError.ofGateway(
      'invalidArgument',
      'Idempotency-Key: give 1 to 200 printable characters without blanks',
    );
  }
  const { kind, list, rebuild, deep } = body;
  return { name, hash: hash('sha256', JSON.stringify([kind, list, rebuild, deep])) };
}
