/**
 * Adds a header to the answers of the source's interface that shows whether the mirror
 * is complete.
 */
import type { FastifyInstance } from 'fastify';
import type { MirrorStatus } from '../../status/status-summary.ts';

/**
 * Adds `x-mirror-complete` to the answers of these paths. It is `true` if the
 * configured scope is proven complete, as the status decides. If the status cannot be
 * read, the header is left out, because rows must be served nevertheless.
 */
export function addCompleteHeader(
  server: FastifyInstance,
  paths: ReadonlySet<string>,
  status: () => Promise<MirrorStatus>,
): void {
  server.addHook('preHandler', async ({ url }, reply) => {
    const [path = ''] = url.split('?', 1);
    if (!paths.has(path)) return;
    try {
      const { complete } = await status();
      reply.header('x-mirror-complete', String(complete));
    } catch {
      // If the database is unavailable, the answer itself reports it.
    }
  });
}
