/** Writes a reply byte by byte: what no HTTP library would send can be sent. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import type { Part, Reply } from './reply.ts';

const CRLF = '\r\n';

export async function writeReply(socket: Socket, answer: Reply): Promise<void> {
  const body =
    answer.framing === 'length'
      ? Buffer.concat([...answer.body].filter(isContent).map(toBytes))
      : undefined;
  await write(socket, answer.prelude + writeHead(answer, body?.length));
  if (body === undefined) await writeParts(socket, answer);
  else await write(socket, body);
  if (answer.ending === 'reset') socket.resetAndDestroy();
  else socket.end();
}

function writeHead(answer: Reply, length: number | undefined): string {
  if (answer.protocol === 'none') return '';
  const framing = describeFraming(answer, length);
  const lines = [
    ...answer.headers,
    ...framing,
    ['Connection', 'close'] as const,
  ].map(([name, value]) => `${name}: ${value}`);
  return [`${answer.protocol} ${answer.status} Said`, ...lines, '', ''].join(
    CRLF,
  );
}

function describeFraming(
  { framing, trailers }: Reply,
  length: number | undefined,
): (readonly [string, string])[] {
  if (framing === 'close') return [];
  if (framing !== 'chunked')
    return [['Content-Length', String(length ?? framing)]];
  const named = trailers.map(([name]) => name).join(', ');
  return [
    ['Transfer-Encoding', 'chunked'],
    ...(named === '' ? [] : [['Trailer', named] as const]),
  ];
}

async function writeParts(socket: Socket, answer: Reply): Promise<void> {
  const isChunked = answer.framing === 'chunked';
  for (const part of answer.body) {
    if (socket.destroyed) return;
    if (typeof part === 'number') await wait(part);
    else if (part.length > 0)
      await write(socket, isChunked ? frame(toBytes(part)) : part);
  }
  if (!isChunked || answer.ending !== 'whole') return;
  const trailers = answer.trailers
    .map(([name, value]) => `${name}: ${value}${CRLF}`)
    .join('');
  await write(socket, `0${CRLF}${trailers}${CRLF}`);
}

function frame(bytes: Buffer): Buffer {
  return Buffer.concat([
    Buffer.from(bytes.length.toString(16) + CRLF),
    bytes,
    Buffer.from(CRLF),
  ]);
}

function isContent(part: Part): part is string | Buffer {
  return typeof part !== 'number';
}

function toBytes(part: string | Buffer): Buffer {
  return typeof part === 'string' ? Buffer.from(part) : part;
}

/** Waits while the client does not read; a client that has gone ends the answer. */
async function write(socket: Socket, part: string | Buffer): Promise<void> {
  if (socket.destroyed || socket.write(part)) return;
  const gone = new AbortController();
  const close = once(socket, 'close', { signal: gone.signal }).catch(
    () => undefined,
  );
  await Promise.race([
    once(socket, 'drain', { signal: gone.signal }).catch(() => undefined),
    close,
  ]);
  gone.abort();
}
