/** `/healthz`: the process lives. `/readyz`: it can do its work, each part tried for real. */
import type { FastifyInstance } from 'fastify';
import type { Log } from '../../core/log.ts';
import type { Probe } from './ports.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import { FLAG, sent, TEXT } from './schemas.ts';

const PROBE_TIMEOUT_MS = 3_000;
/** Anybody may ask, so asking often must cost nothing. */
const PROBED_MAX_AGE_MS = 1_000;

interface Readiness {
  readonly ready: boolean;
  readonly parts: Readonly<Record<string, 'ok' | 'failed'>>;
}

const READINESS = sent({ ready: FLAG, parts: { type: 'object', additionalProperties: TEXT } });

/** Adds both routes. They tell no more than which part fails: they are open to everybody. */
export function addHealth(server: FastifyInstance, probes: readonly Probe[], log: Log): void {
  const readiness = sharedLoad(() => probeAll(probes, log), PROBED_MAX_AGE_MS);
  server.get(
    '/healthz',
    {
      schema: {
        tags: ['health'],
        summary: 'The process lives',
        response: { 200: sent({ status: TEXT }) },
      },
    },
    () => ({ status: 'ok' }),
  );
  server.get(
    '/readyz',
    {
      schema: {
        tags: ['health'],
        summary: 'The process can do its work',
        response: { 200: READINESS, 503: READINESS },
      },
    },
    async (_request, reply) => {
      const found = await readiness();
      return reply.code(found.ready ? 200 : 503).send(found);
    },
  );
}

async function probeAll(probes: readonly Probe[], log: Log): Promise<Readiness> {
  const results = await Promise.all(
    probes.map(async (probe) => {
      try {
        await within(probe, AbortSignal.timeout(PROBE_TIMEOUT_MS));
        return [probe.name, 'ok'] as const;
      } catch (error) {
        log.warn({ err: error, part: probe.name }, 'Part is not ready');
        return [probe.name, 'failed'] as const;
      }
    }),
  );
  return { ready: results.every(([, result]) => result === 'ok'), parts: Object.fromEntries(results) };
}

/** Ends with the signal even where the probe does not heed it. */
function within(probe: Probe, signal: AbortSignal): Promise<unknown> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    probe.check(signal).then(resolve, reject);
  });
}
