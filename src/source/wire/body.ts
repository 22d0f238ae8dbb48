/** The body of an answer: decompressed, counted, and never waited for without a limit. */
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { PermanentError, RetryableError } from '../../core/errors.ts';

const GUNZIP_CHUNK_BYTES = 256 * 1024;

export interface DripLimit {
  /** A slower average counts as stalled. */
  readonly bytesPerSecondMin: number;
  /** Measured over this much waiting. */
  readonly windowMs: number;
}

/**
 * Finds a stream that is kept alive by a trickle. Only waiting counts: while the consumer is busy the
 * source is not slow.
 */
export class DripGuard {
  readonly #limit: DripLimit;
  /** Until the first byte: a slow query may be kept alive by blank lines for as long as its headers may take. */
  readonly #beginMs: number;
  #hasBegun = false;
  #waitedMs = 0;
  #bytes = 0;

  constructor(limit: DripLimit, beginMs = limit.windowMs) {
    this.#limit = limit;
    this.#beginMs = Math.max(beginMs, limit.windowMs);
  }

  /** @throws RetryableError `SOURCE_DRIP` */
  arrived(bytes: number, waitedMs: number): void {
    this.#bytes += bytes;
    this.#waitedMs += waitedMs;
    this.#hasBegun ||= bytes > 0;
    if (this.#waitedMs < (this.#hasBegun ? this.#limit.windowMs : this.#beginMs)) return;
    const perSecond = (this.#bytes * 1000) / this.#waitedMs;
    if (perSecond < this.#limit.bytesPerSecondMin) {
      throw new RetryableError(
        `Cannot read the answer: only ${Math.floor(perSecond)} bytes a second came for ${Math.round(this.#waitedMs / 1000)} s`,
        { code: 'SOURCE_DRIP', meta: { bytesPerSecond: perSecond, windowMs: this.#limit.windowMs } },
      );
    }
    this.#waitedMs = 0;
    this.#bytes = 0;
  }
}

/** Passes the wire's bytes on, judged and counted. */
export async function* guardBody(
  body: AsyncIterable<Buffer>,
  guard: DripGuard,
  count: (bytes: number) => void,
  usefulBytes?: () => number,
): AsyncGenerator<Buffer, void, undefined> {
  let since = performance.now();
  let usefulBefore = 0;
  for await (const chunk of body) {
    count(chunk.length);
    const useful = usefulBytes?.();
    guard.arrived(useful === undefined ? chunk.length : useful - usefulBefore, performance.now() - since);
    usefulBefore = useful ?? 0;
    yield chunk;
    since = performance.now();
  }
}

/**
 * Decompresses by what `Content-Encoding` names. An error of the source comes out of the result.
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` for an encoding that nobody asked for
 */
export function decoded(body: AsyncIterable<Buffer>, encoding: string | undefined): AsyncIterable<Buffer> {
  const name = (encoding ?? '').trim().toLowerCase();
  if (name === '' || name === 'identity') return body;
  if (name === 'gzip' || name === 'x-gzip') return gunzipped(body);
  throw new RetryableError(
    `Cannot read the answer: it is encoded as ${JSON.stringify(name.slice(0, 40))}, which was not asked for`,
    { code: 'ANSWER_NOT_UNDERSTOOD', meta: { encoding: name.slice(0, 40) } },
  );
}

/**
 * Every member to its end. Node's gunzip ignores all that follows a zero byte behind a member.
 * @throws RetryableError `SOURCE_BROKE` for bytes behind the last member
 */
async function* gunzipped(body: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
  const gunzip = createGunzip({ chunkSize: GUNZIP_CHUNK_BYTES });
  let received = 0;
  const counted = async function* (): AsyncGenerator<Buffer, void, undefined> {
    for await (const chunk of body) {
      received += chunk.length;
      yield chunk;
    }
  };
  // The reader of gunzip gets the error; the callback keeps it from being thrown twice.
  const ended = new Promise<Error | null | undefined>((resolve) => pipeline(counted, gunzip, resolve));
  yield* gunzip as AsyncIterable<Buffer>;
  const failed = await ended;
  if (gunzip.bytesWritten < received) throw trailingBytes();
  if (failed instanceof Error) throw failed;
}

function trailingBytes(): RetryableError {
  return new RetryableError('Cannot read the answer: other bytes follow its last gzip member; ask again', {
    code: 'SOURCE_BROKE',
  });
}

/**
 * The whole body, up to a limit that also stops a decompression bomb.
 * @throws PermanentError `PAGE_TOO_LARGE`
 */
export async function readWhole(body: AsyncIterable<Buffer>, bytesMax: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > bytesMax) {
      throw new PermanentError(
        `Cannot read the answer: it is larger than ${bytesMax} bytes; ask for smaller pages (SOURCE_PAGE_SIZE)`,
        { code: 'PAGE_TOO_LARGE', meta: { bytesMax } },
      );
    }
    chunks.push(chunk);
  }
  const [only] = chunks;
  return chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks, bytes);
}

/** The beginning of an error's body. Its status has decided already, so a broken or huge body is cut. */
export async function readStart(body: AsyncIterable<Buffer>, bytesMax: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of body) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes >= bytesMax) break;
    }
  } catch {
    // The part that came is shown.
  }
  return Buffer.concat(chunks);
}
