/**
 * Adds a header to the answers of the source's interface that says whether the mirror is
 * complete.
 */
import type { FastifyInstance } from 'fastify';
import type { MirrorStatus } from '../../status/status-summary.ts';

/**
 * Adds `x-mirror-complete` to the answers of these paths. It is `true` if the configured
 * scope is proven complete, as the status decides. The header is left out if the status
 * cannot be read, because that must not keep rows from being served.
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
      // If the database does not work, the answer itself reports it.
    }
  });
}
