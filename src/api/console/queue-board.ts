/**
 * The queue board at `/queues`. It shows the payloads of jobs, which contain only ids and
 * no ledger data.
 */
import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { FastifyAdapter } from '@bull-board/fastify';
import { Queue } from 'bullmq';
import type { FastifyInstance } from 'fastify';
import type { Queues } from '../../queue/queues.ts';

const BASE = '/queues';
/**
 * The board's Content-Security-Policy. The board uses inline styles, and resolves its
 * files against its own base URL.
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
 * Matches a tag of the page that loads fonts from another host. It is removed, because
 * the content security policy would block the request.
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
   * Whether the board can only show jobs. True if no token is required, because any
   * client could otherwise retry, promote or clear them.
   */
  readonly isReadOnly: boolean;
  /** The path prefix under which browsers reach the console, or an empty string. */
  readonly basePath: string;
}

/** Adds the board, which is protected by the same checks as every other route. */
export function addQueueBoard(
  server: FastifyInstance,
  queues: Queues,
  { isReadOnly, basePath }: QueueBoardOptions,
): void {
  const adapter = new FastifyAdapter().setBasePath(`${basePath}${BASE}`);
  const boardQueues = queues.forBoard().map(([name, queue]) => {
    if (!(queue instanceof Queue))
      throw new TypeError(`the queue ${name} was not made by BullMQ`);
    return new BullMQAdapter(queue, {
      readOnlyMode: isReadOnly,
      displayName: name,
      description: DESCRIPTIONS[name],
      // Link to the run, because the queue forgets finished jobs but the mirror keeps the
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
