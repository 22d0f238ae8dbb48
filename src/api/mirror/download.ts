/**
 * Serves a ledger as a file with a size, an ETag and byte ranges, so that an interrupted
 * download can be resumed. Nothing is written to disk: the size is computed from the
 * segments' sizes, and a range is read from the segments that contain it.
 */
import { Readable } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { LedgerQuery } from '../../ledger/ledger-range.ts';
import { ByteBudget } from '../kit/byte-budget.ts';
import { readByteRange } from '../kit/byte-range.ts';
import { limitOpen } from '../kit/events.ts';
import { sendJson, StatusError } from '../kit/status-error.ts';
import { openLedger } from '../source-api/ledger-export.ts';
import type { SourceApiDeps } from '../source-api/ports.ts';

/**
 * Maximum number of concurrent downloads; each keeps an object open. Exports through the
 * source-compatible API have their own limit.
 */
const OPEN_DOWNLOADS_MAX = 32;

export type SendDownload = (
  request: FastifyRequest,
  reply: FastifyReply,
  query: LedgerQuery,
) => Promise<FastifyReply>;

/**
 * Returns a function that responds to a request with a ledger, or part of it.
 * @param bytesPerHour maximum number of bytes that all downloads of this process may send
 *   per hour
 */
export function openDownloads(
  deps: SourceApiDeps,
  bytesPerHour: number,
): SendDownload {
  const takePlace = limitOpen(OPEN_DOWNLOADS_MAX);
  const budget = new ByteBudget(bytesPerHour);
  return async (request, reply, query) => {
    const opened = await openLedger(reply, query, deps, takePlace);
    const { reading } = opened;
    const size = await reading.measure();
    const tag = `"${reading.tag}"`;
    reply.headers({
      'accept-ranges': 'bytes',
      'content-type': 'text/csv',
      etag: tag,
    });
    if (isKnownTo(request, tag)) return reply.code(304).send();
    const range = readByteRange(request.headers, size, tag);
    if (range === 'none') return refuseRange(reply, size);
    const { start, end } = range === 'whole' ? { start: 0n, end: size } : range;
    if (range !== 'whole')
      reply
        .code(206)
        .header('content-range', `bytes ${start}-${end - 1n}/${size}`);
    const length = end - start;
    reply.header('content-length', String(length));
    // Send an empty stream: for any other body, Fastify would send its own length
    // instead of the file's.
    if (request.method === 'HEAD') return reply.send(Readable.from([]));
    const bytes = Number(length);
    takeBytes(reply, budget, bytes);
    try {
      const rows = await opened.rows(start);
      return reply.send(sendPart(reply, rows, bytes, budget));
    } catch (error) {
      budget.giveBack(bytes);
      throw error;
    }
  };
}

/**
 * Whether the client already has this version of the file.
 * @see RFC 9110, 13.1.2
 */
function isKnownTo({ headers }: FastifyRequest, tag: string): boolean {
  const tags = headers['if-none-match']?.split(',') ?? [];
  return tags.some((one) => one.trim().replace(/^W\//, '') === tag);
}

/**
 * Refuses a range outside the file. The error is sent here because, unlike others, it
 * needs a header with the file's size.
 */
function refuseRange(reply: FastifyReply, size: bigint): FastifyReply {
  const { statusCode, body } = new StatusError(
    'outOfRange',
    `the file has ${size} bytes`,
  );
  reply.removeHeader('content-disposition');
  reply.header('content-range', `bytes */${size}`);
  return sendJson(reply.code(statusCode), body);
}

function takeBytes(
  reply: FastifyReply,
  budget: ByteBudget,
  bytes: number,
): void {
  const waitSeconds = budget.take(bytes);
  if (waitSeconds === 0) return;
  reply.header('retry-after', String(waitSeconds));
  throw new StatusError(
    'resourceExhausted',
    'the downloads of this hour are used up (API_DOWNLOADS_PER_HOUR); try again ' +
      `in ${waitSeconds} s`,
  );
}

/**
 * Sends part of a ledger. A failure resets the connection, so that even an HTTP/1.0
 * client, which takes the end of the connection for the end of the file, notices that the
 * file is incomplete. Bytes that were not sent are returned to the budget.
 */
function sendPart(
  reply: FastifyReply,
  rows: Readable,
  bytes: number,
  budget: ByteBudget,
): Readable {
  let left = bytes;
  // Leaving the loop closes the stream, so nothing beyond the range is read.
  async function* part(): AsyncGenerator<Buffer> {
    for await (const chunk of rows as AsyncIterable<Buffer>) {
      const sent = chunk.subarray(0, Math.min(left, chunk.length));
      left -= sent.length;
      yield sent;
      if (left === 0) return;
    }
  }
  reply.raw.once('close', () => budget.giveBack(left));
  return Readable.from(part(), { objectMode: false }).once('error', () => {
    if (reply.raw.headersSent) reply.raw.socket?.resetAndDestroy();
  });
}
