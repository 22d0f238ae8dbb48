/** Asks for an export over a bare socket, and keeps every byte that comes. */
import { connect } from 'node:net';
import { gunzipSync } from 'node:zlib';

export interface RawAnswer {
  /** All bytes as latin1: one character a byte. */
  readonly wire: string;
  readonly head: string;
  /** The body without its chunk frames, as UTF-8; gzip is opened where it is whole. */
  readonly text: string;
  /**
   * How the connection ended, or that it was given up after so many bytes or
   * milliseconds.
   */
  readonly end: 'closed' | 'reset' | 'given-up';
}

const MOST_BYTES = 8_000_000;
/** Far beyond what a busy machine needs; answers without an end are given up sooner. */
const PATIENCE_MS = 60_000;

export function askRaw(
  url: string,
  path: string,
  patienceMs = PATIENCE_MS,
): Promise<RawAnswer> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const pieces: Buffer[] = [];
    let size = 0;
    const socket = connect(Number(port), hostname, () =>
      socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`),
    );
    const finish = (end: RawAnswer['end']): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(describe(Buffer.concat(pieces), end));
    };
    const timer = setTimeout(() => finish('given-up'), patienceMs);
    socket.on('data', (bytes) => {
      pieces.push(bytes);
      size += bytes.length;
      if (size > MOST_BYTES) finish('given-up');
    });
    socket.on('end', () => finish('closed'));
    socket.on('error', () => finish('reset'));
  });
}

function describe(bytes: Buffer, end: RawAnswer['end']): RawAnswer {
  const wire = bytes.toString('latin1');
  const border =
    wire.lastIndexOf('HTTP/1.') === -1
      ? -1
      : wire.indexOf('\r\n\r\n', wire.lastIndexOf('HTTP/1.'));
  const head = border === -1 ? '' : wire.slice(0, border);
  const body = bytes.subarray(border === -1 ? 0 : border + 4);
  return {
    wire,
    head,
    text: open(/chunked/i.test(head) ? unframe(body) : body, head),
    end,
  };
}

function open(body: Buffer, head: string): string {
  if (!/Content-Encoding: gzip/i.test(head)) return body.toString('utf8');
  try {
    return gunzipSync(body).toString('utf8');
  } catch {
    return body.toString('latin1');
  }
}

function unframe(body: Buffer): Buffer {
  const chunks: Buffer[] = [];
  let at = 0;
  for (;;) {
    const lineEnd = body.indexOf('\r\n', at);
    const size =
      lineEnd === -1
        ? Number.NaN
        : Number.parseInt(body.subarray(at, lineEnd).toString('latin1'), 16);
    if (!(size > 0)) return Buffer.concat(chunks);
    chunks.push(body.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 2 + size + 2;
  }
}
