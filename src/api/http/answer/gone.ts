import type { FastifyReply } from 'fastify';

/** Aborts once the client is gone, or has its whole answer: what is still read for it is let go. */
export function goneSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController();
  if (reply.raw.destroyed) gone.abort();
  else reply.raw.once('close', () => gone.abort());
  return gone.signal;
}
