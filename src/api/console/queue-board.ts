/**
 * The queue board at `/queues`. It shows the content of jobs, which consists of ids
 * only and has no data of ledgers.
 */
import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { FastifyAdapter } from '@bull-board/fastify';
import { Queue } from 'bullmq';
import type { FastifyInstance } from 'fastify';
import type { Queues } from '../../queue/queues.ts';

const BASE = '/queues';
/**
 * The content policy of the board, which sets styles inline, and resolves its files
 * against a base of its own.
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
 * A tag of the page that loads fonts from another host. The content policy would refuse
 * that, so the tag is removed.
 */
const FOREIGN_LINK = /<link [^>]*href="https?:\/\/[^>]*>\s*/g;
const DESCRIPTIONS = {
  sync: 'The lists of parties and checkpoints',
  export: 'Ledger exports: ordered ones first, then those of nightly runs',
  load: 'Segments into the warehouse and the lake',
  nightly: 'The nightly run',
} as const;

export interface QueueBoardOptions {
  /**
   * Whether the board may only show the jobs. True if no token is required, because any
   * client could otherwise retry, promote or clear them.
   */
  readonly isReadOnly: boolean;
  /** The path below which browsers reach the console, or empty text. */
  readonly basePath: string;
}

/** Adds the board. The checks in front of every route protect it too. */
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
      // Links to the run: the queue forgets finished jobs, but the mirror keeps the
      // run.
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
      // The page is rewritten before it is sent, so the board must not compress it.
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
