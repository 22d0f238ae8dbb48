/** The queue board at `/queues`. What it shows of a job is what a job holds: ids. */
import { createBullBoard } from '@bull-board/api';
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter';
import { FastifyAdapter } from '@bull-board/fastify';
import { Queue } from 'bullmq';
import type { FastifyInstance } from 'fastify';
import type { Queues } from '../../queue/queues.ts';

const BASE = '/queues';
/** The board styles its charts in place, and resolves its files against a base of its own. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'self'; frame-ancestors 'none'";
/** Its page asks another host for fonts; the policy refuses that, so it need not be tried. */
const FOREIGN_LINK = /<link [^>]*href="https?:\/\/[^>]*>\s*/g;
const DESCRIPTIONS = {
  sync: 'The lists of parties and checkpoints',
  export: 'Ledger exports: ordered ones first, then those of nightly runs',
  load: 'Segments into the warehouse and the lake',
  nightly: 'The nightly run',
} as const;

/**
 * Adds the board behind the checks that stand before every route.
 * @param isReadOnly where nobody shows a token, nobody may retry, promote or clear jobs
 */
export function addQueueBoard(
  server: FastifyInstance,
  queues: Queues,
  isReadOnly: boolean,
): void {
  const adapter = new FastifyAdapter().setBasePath(BASE);
  createBullBoard({
    serverAdapter: adapter,
    queues: queues.forBoard().map(([name, queue]) => {
      if (!(queue instanceof Queue))
        throw new TypeError(`the queue ${name} is none of BullMQ's`);
      return new BullMQAdapter(queue, {
        readOnlyMode: isReadOnly,
        displayName: name,
        description: DESCRIPTIONS[name],
        // The run that a job works: its history, which the queue forgets and the mirror does not.
        externalJobUrl: ({ data: { runId } }) =>
          typeof runId === 'string'
            ? { displayText: 'Run', href: `/mirror/runs/${encodeURIComponent(runId)}` }
            : { displayText: 'Runs', href: '/mirror/runs' },
      });
    }),
    options: {
      uiConfig: {
        boardTitle: 'ledger-mirror queues',
        hideDocsLink: true,
        miscLinks: [{ text: 'Console', url: '/' }],
      },
    },
  });
  server.register(async (scope) => {
    scope.addHook('onRequest', async ({ headers }, reply) => {
      reply.header('content-security-policy', POLICY);
      // Its page is changed on the way out, so it is not to be packed before.
      delete headers['accept-encoding'];
    });
    scope.addHook('onSend', async (_request, reply, payload: unknown) => {
      const isPage = String(reply.getHeader('content-type')).startsWith('text/html');
      return isPage && typeof payload === 'string'
        ? payload.replaceAll(FOREIGN_LINK, '')
        : payload;
    });
    await scope.register(adapter.registerPlugin(), { prefix: BASE });
  });
}
