/** Gzip for those who ask for it, as the service gives it; and `Vary`, which the service forgets. */
import { pipeline, Readable } from 'node:stream';
import { promisify } from 'node:util';
import { constants, createGzip, gzip } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { weightOf } from './accept.ts';

/** As the service does: a mirror's time is dearer than the last tenth of the bytes. */
const OPTIONS = { level: constants.Z_BEST_SPEED } as const;
/** What fits into a packet gains nothing. */
const BYTES_MIN = 1_024;
/** Not event streams, whose every line must get out at once. */
const TYPES = /^(?:application\/json|text\/csv|text\/css|text\/javascript)(?:;|$)/;
const compress = promisify(gzip);

/** Adds the hook; it sees every answer that is sent by way of the framework. */
export function addCompression(server: FastifyInstance): void {
  server.addHook('onSend', async (request, reply, payload: unknown) => {
    if (!isCompressible(reply)) return payload;
    const vary = reply.getHeader('vary');
    reply.header('vary', vary === undefined ? 'Accept-Encoding' : `${String(vary)}, Accept-Encoding`);
    if (!takesGzip(request)) return payload;
    if (payload instanceof Readable) {
      nameGzip(reply);
      // Where either end breaks off, the other is let go; what was wrong is the framework's to tell.
      return pipeline(payload, createGzip(OPTIONS), () => undefined);
    }
    if (typeof payload !== 'string' && !Buffer.isBuffer(payload)) return payload;
    if (Buffer.byteLength(payload) < BYTES_MIN) return payload;
    nameGzip(reply);
    return compress(payload, OPTIONS);
  });
}

/** Ranges count the bytes as they are, so what can be asked for in ranges is sent as it is. */
function isCompressible(reply: FastifyReply): boolean {
  return (
    TYPES.test(String(reply.getHeader('content-type'))) &&
    !reply.hasHeader('content-encoding') &&
    !reply.hasHeader('accept-ranges')
  );
}

function nameGzip(reply: FastifyReply): void {
  reply.removeHeader('content-length').header('content-encoding', 'gzip');
}

/** Whether the client unpacks it. */
export function takesGzip({ headers }: FastifyRequest): boolean {
  return ['gzip', 'x-gzip'].some((coding) => weightOf(headers['accept-encoding'], coding) > 0);
}
