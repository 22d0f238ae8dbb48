/** `/healthz`: the process lives. `/readyz`: it can do its work, each part tried for real. */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import type { Log } from '../../core/log.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import { within } from '../../core/waiting.ts';
import type { Probe } from './ports.ts';
import { openRoutes } from './routes.ts';

const PROBE_TIMEOUT_MS = 3_000;
/** Anybody may ask, so asking often must cost nothing. */
const PROBED_MAX_AGE_MS = 1_000;

const ALIVE = z.object({ status: z.string() });
const READINESS = z.object({ ready: z.boolean(), parts: z.record(z.string(), z.enum(['ok', 'failed'])) });

/** Adds both routes. They tell no more than which part fails: they are open to everybody. */
export function addHealth(server: FastifyInstance, probes: readonly Probe[], log: Log): void {
  const late = () => new Error(`no answer within ${PROBE_TIMEOUT_MS} ms`);
  const tryOut = async (probe: Probe) => {
    try {
      await within(PROBE_TIMEOUT_MS, (signal) => probe.check(signal), late);
      return [probe.name, 'ok'] as const;
    } catch (error) {
      log.warn({ err: error, part: probe.name }, 'Part is not ready');
      return [probe.name, 'failed'] as const;
    }
  };
  const readiness = sharedLoad(async () => {
    const results = await Promise.all(probes.map(tryOut));
    return { ready: results.every(([, result]) => result === 'ok'), parts: Object.fromEntries(results) };
  }, PROBED_MAX_AGE_MS);
  const add = openRoutes(server, 'health');
  add('GET /healthz', { summary: 'The process lives', response: { 200: ALIVE } }, () => ({ status: 'ok' }));
  add(
    'GET /readyz',
    { summary: 'The process can do its work', response: { 200: READINESS, 503: READINESS } },
    async (_request, reply) => {
      const found = await readiness();
      return reply.code(found.ready ? 200 : 503).send(found);
    },
  );
}
