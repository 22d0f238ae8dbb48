/**
 * Compresses responses with gzip for clients that accept it, as the source does. It also
 * adds the header `Vary`, which the source omits.
 */
import { pipeline, Readable } from 'node:stream';
import { promisify } from 'node:util';
import { constants, createGzip, gzip } from 'node:zlib';
import type { FastifyInstance } from 'fastify';

/**
 * The same level as the source uses: saving CPU time matters more than saving the last
 * tenth of the bytes.
 */
const OPTIONS = { level: constants.Z_BEST_SPEED } as const;
/** A shorter response fits into one packet, so compressing it gains nothing. */
const BYTES_MIN = 1_024;
/**
 * Content types to compress. Event streams are excluded, because each of their lines
 * must be sent at once.
 */
const TYPES = /^(?:application\/json|text\/(?:csv|css|html|javascript))(?:;|$)/;
const compress = promisify(gzip);

/** Registers the compression as a hook on every response. */
export function addCompression(server: FastifyInstance): void {
  server.addHook('onSend', async (request, reply, payload: unknown) => {
    if (!TYPES.test(String(reply.getHeader('content-type')))) return payload;
    const vary = reply.getHeader('vary');
    const others = vary === undefined ? '' : `${String(vary)}, `;
    reply.header('vary', `${others}Accept-Encoding`);

    const isStream = payload instanceof Readable;
    if (!isStream && !isLong(payload)) return payload;
    // The ranges and lengths of a download refer to uncompressed bytes.
    if (reply.hasHeader('accept-ranges')) return payload;
    if (!acceptsGzip(request.headers['accept-encoding'])) return payload;
    reply.removeHeader('content-length').header('content-encoding', 'gzip');
    // If either stream fails, the other is destroyed. Fastify reports the error.
    return isStream
      ? pipeline(payload, createGzip(OPTIONS), () => undefined)
      : compress(payload, OPTIONS);
  });
}

function isLong(payload: unknown): payload is string | Buffer {
  const isBytes = typeof payload === 'string' || Buffer.isBuffer(payload);
  return isBytes && Buffer.byteLength(payload) >= BYTES_MIN;
}

function acceptsGzip(accepted: string | string[] | undefined): boolean {
  const header = String(accepted ?? '');
  return ['gzip', 'x-gzip'].some((coding) => weightOf(header, coding) > 0);
}

/**
 * Returns the weight (q-value), from 0 to 1, that a client gives to `name`; 0 if its
 * Accept header does not list it.
 */
function weightOf(accept: string, name: string): number {
  for (const range of accept.toLowerCase().split(',')) {
    const [value, ...parameters] = range.split(';').map((part) => part.trim());
    if (value !== name) continue;
    const quality = parameters.find((parameter) => parameter.startsWith('q='));
    const weight = Number(quality?.slice(2) ?? 1);
    return Number.isFinite(weight) ? weight : 0;
  }
  return 0;
}
