/** The header that says with each answer of the source's interface what the mirror is. */
import type { FastifyInstance } from 'fastify';
import type { MirrorStatus } from '../../status/status-summary.ts';

/**
 * Adds `x-mirror-complete` to the answers of these paths: `true` if what is configured is
 * proven complete, as the status decides it. The header is left out if the status cannot
 * be read, because that must not keep rows from being served.
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
      // The answer itself says what is wrong with the database.
    }
  });
}
