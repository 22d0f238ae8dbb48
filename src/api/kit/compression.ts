/** Gzip for those who ask for it, as the service gives it; and `Vary`, which the service forgets. */
import { pipeline, Readable } from 'node:stream';
import { promisify } from 'node:util';
import { constants, createGzip, gzip } from 'node:zlib';
import type { FastifyInstance } from 'fastify';

/** As the service does: a mirror's time is dearer than the last tenth of the bytes. */
const OPTIONS = { level: constants.Z_BEST_SPEED } as const;
/** What fits into a packet gains nothing. */
const BYTES_MIN = 1_024;
/** Not event streams, whose every line must get out at once. */
const TYPES = /^(?:application\/json|text\/(?:csv|css|html|javascript))(?:;|$)/;
const compress = promisify(gzip);

/** Adds the hook; it sees every answer that is sent by way of the framework. */
export function addCompression(server: FastifyInstance): void {
  server.addHook('onSend', async (request, reply, payload: unknown) => {
    if (!TYPES.test(String(reply.getHeader('content-type')))) return payload;
    const vary = reply.getHeader('vary');
    reply.header(
      'vary',
      vary === undefined ? 'Accept-Encoding' : `${String(vary)}, Accept-Encoding`,
    );
    const isStream = payload instanceof Readable;
    const isLong =
      (typeof payload === 'string' || Buffer.isBuffer(payload)) &&
      Buffer.byteLength(payload) >= BYTES_MIN;
    const { 'accept-encoding': accepted } = request.headers;
    const takesGzip = ['gzip', 'x-gzip'].some((coding) => weightOf(accepted, coding) > 0);
    if (!takesGzip || !(isStream || isLong)) return payload;
    reply.removeHeader('content-length').header('content-encoding', 'gzip');
    // Where either end breaks off, the other is let go; what was wrong is the framework's to tell.
    return isStream
      ? pipeline(payload, createGzip(OPTIONS), () => undefined)
      : compress(payload, OPTIONS);
  });
}

/** How much a client wants one of what an Accept header names, from 0 to 1; 0 where it is not named. */
export function weightOf(accept: string | undefined, name: string): number {
  for (const range of (accept ?? '').toLowerCase().split(',')) {
    const [named, ...parameters] = range.split(';').map((part) => part.trim());
    if (named !== name) continue;
    const weight = Number(
      parameters.find((parameter) => parameter.startsWith('q='))?.slice(2) ?? 1,
    );
    return Number.isFinite(weight) ? weight : 0;
  }
  return 0;
}
