/**
 * Sends a ledger as a file: with its size, a tag and ranges of bytes, so that a download
 * that was cut goes on where it ended. Nothing is written to the disk: the size follows
 * from the segments' sizes, and a range is read from the segments that hold it.
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

/** Each holds an object open. They take no place of the mirrored export's. */
const OPEN_DOWNLOADS_MAX = 32;

export type SendDownload = (
  request: FastifyRequest,
  reply: FastifyReply,
  query: LedgerQuery,
) => Promise<FastifyReply>;

/**
 * @param bytesPerHour what all downloads of this process may send in an hour
 * @returns a function that answers with a ledger, or a part of it
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
    // A stream: for anything else Fastify sends the length of the body that HEAD leaves out.
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

/** @see RFC 9110, 13.1.2 */
function isKnownTo({ headers }: FastifyRequest, tag: string): boolean {
  const tags = headers['if-none-match']?.split(',') ?? [];
  return tags.some((one) => one.trim().replace(/^W\//, '') === tag);
}

/** Sent here: the size of the file is a header that other errors do not have. */
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
 * What fails resets the connection: a client of HTTP/1.0, to whom its end is the file's,
 * sees that the file is cut too. Bytes that were not sent go back into the budget.
 */
function sendPart(
  reply: FastifyReply,
  rows: Readable,
  bytes: number,
  budget: ByteBudget,
): Readable {
  let left = bytes;
  // Ending the loop ends the reading: nothing behind the range is read.
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
