/**
 * Adds to the responses of the source-compatible API a header that shows whether the
 * mirror is complete.
 */
import type { FastifyInstance } from 'fastify';
import type { MirrorStatus } from '../../status/status-summary.ts';

/**
 * Adds `x-mirror-complete` to the responses of these paths. It is `true` if the status
 * says that the configured scope is proven complete. If the status cannot be read, the
 * header is omitted, because rows must be served anyway.
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
      // If the database is unavailable, the response itself reports it.
    }
  });
}
