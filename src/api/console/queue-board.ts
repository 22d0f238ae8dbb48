/**
 * The queue board at `/queues`. It shows what a job holds: ids, nothing of the ledger.
 */
import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { FastifyAdapter } from '@bull-board/fastify';
import { Queue } from 'bullmq';
import type { FastifyInstance } from 'fastify';
import type { Queues } from '../../queue/queues.ts';

const BASE = '/queues';
/**
 * The board styles its charts in place, and resolves its files against a base of its own.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "form-action 'self'",
  "base-uri 'self'",
  "frame-ancestors 'none'",
].join('; ');
/**
 * The page loads fonts from another host. The policy refuses that, so the tag is left
 * out.
 */
const FOREIGN_LINK = /<link [^>]*href="https?:\/\/[^>]*>\s*/g;
const DESCRIPTIONS = {
  sync: 'The lists of parties and checkpoints',
  export: 'Ledger exports: ordered ones first, then those of nightly runs',
  load: 'Segments into the warehouse and the lake',
  nightly: 'The nightly run',
} as const;

export interface QueueBoardOptions {
  /** true if no token is asked for: then nobody may retry, promote or clear jobs. */
  readonly isReadOnly: boolean;
  /** The path below which browsers reach the console, or empty text. */
  readonly basePath: string;
}

/** Adds the board. The checks that stand before every route hold for it too. */
export function addQueueBoard(
  server: FastifyInstance,
  queues: Queues,
  { isReadOnly, basePath }: QueueBoardOptions,
): void {
  const adapter = new FastifyAdapter().setBasePath(`${basePath}${BASE}`);
  const boardQueues = queues.forBoard().map(([name, queue]) => {
    if (!(queue instanceof Queue))
      throw new TypeError(`the queue ${name} is not one of BullMQ`);
    return new BullMQAdapter(queue, {
      readOnlyMode: isReadOnly,
      displayName: name,
      description: DESCRIPTIONS[name],
      // The run's own page: the queue forgets a job, and the mirror does not.
      externalJobUrl: ({ data: { runId } }) =>
        typeof runId === 'string'
          ? {
              displayText: 'Run',
              href: `${basePath}/mirror/runs/${encodeURIComponent(runId)}`,
            }
          : { displayText: 'Runs', href: `${basePath}/mirror/runs` },
    });
  });
  createBullBoard({
    serverAdapter: adapter,
    queues: boardQueues,
    options: {
      uiConfig: {
        boardTitle: 'ledger-mirror queues',
        hideDocsLink: true,
        miscLinks: [{ text: 'Console', url: `${basePath}/` }],
      },
    },
  });

  server.register(async (scope) => {
    scope.addHook('onRequest', async ({ headers }, reply) => {
      reply.header('content-security-policy', POLICY);
      // The page is rewritten on the way out, so the answer must not be compressed
      // before.
      delete headers['accept-encoding'];
    });
    scope.addHook('onSend', async (_request, reply, payload: unknown) => {
      const isPage = String(reply.getHeader('content-type')).startsWith(
        'text/html',
      );
      return isPage && typeof payload === 'string'
        ? payload.replaceAll(FOREIGN_LINK, '')
        : payload;
    });
    await scope.register(adapter.registerPlugin(), { prefix: BASE });
  });
}
