/** The body of an answer: decompressed, counted, and never waited for without a limit. */
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { PermanentError, RetryableError } from '../../errors/errors.ts';

const GUNZIP_CHUNK_BYTES = 256 * 1024;

export interface DripLimit {
  /** A slower average counts as stalled. */
  readonly bytesPerSecondMin: number;
  /** Measured over this much waiting. */
  readonly windowMs: number;
}

/**
 * Finds a stream that is kept alive by a trickle. Only waiting counts: while the consumer
 * is busy the source is not slow.
 */
export class DripGuard {
  readonly #limit: DripLimit;
  /**
   * Until the first byte: a slow query may be kept alive by blank lines for as long as
   * its headers may take.
   */
  #windowMs: number;
  #waitedMs = 0;
  #bytes = 0;
  /** All that came over the wire. */
  wireBytes = 0;

  constructor(limit: DripLimit, beginMs = limit.windowMs) {
    this.#limit = limit;
    this.#windowMs = Math.max(beginMs, limit.windowMs);
  }

  /** @throws RetryableError `SOURCE_DRIP` */
  arrived(bytes: number, waitedMs: number): void {
    const { bytesPerSecondMin, windowMs } = this.#limit;
    this.#bytes += bytes;
    this.#waitedMs += waitedMs;
    if (bytes > 0) this.#windowMs = windowMs;
    if (this.#waitedMs < this.#windowMs) return;
    const bytesPerSecond = (this.#bytes * 1000) / this.#waitedMs;
    if (bytesPerSecond < bytesPerSecondMin) {
      throw new RetryableError(
        `Cannot read the answer: only ${Math.floor(bytesPerSecond)} bytes a ` +
          `second came for ${Math.round(this.#waitedMs / 1000)} s`,
        { code: 'SOURCE_DRIP', meta: { bytesPerSecond, windowMs } },
      );
    }
    this.#waitedMs = 0;
    this.#bytes = 0;
  }

  /**
   * Passes the wire's bytes on, judged and counted.
   * @param usefulBytes how many bytes of what was asked for have come; absent: all that
   *   come count
   */
  async *pass(
    body: AsyncIterable<Buffer>,
    usefulBytes = () => this.wireBytes,
  ): AsyncGenerator<Buffer, void> {
    let since = performance.now();
    let before = 0;
    for await (const chunk of body) {
      this.wireBytes += chunk.length;
      const useful = usefulBytes();
      this.arrived(useful - before, performance.now() - since);
      before = useful;
      yield chunk;
      since = performance.now();
    }
  }
}

/**
 * Decompresses by what `Content-Encoding` names. An error of the source comes out of the
 * result.
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` for an encoding that nobody asked for
 */
export function decoded(
  body: AsyncIterable<Buffer>,
  encoding: string,
): AsyncIterable<Buffer> {
  const name = encoding.trim().toLowerCase();
  if (name === '' || name === 'identity') return body;
  if (name === 'gzip' || name === 'x-gzip') return gunzipped(body);
  throw new RetryableError(
    'Cannot read the answer: it is encoded as ' +
      `${JSON.stringify(name.slice(0, 40))}, which was not asked for`,
    { code: 'ANSWER_NOT_UNDERSTOOD', meta: { encoding: name.slice(0, 40) } },
  );
}

/**
 * Every member to its end. Node's gunzip ignores all that follows a zero byte behind a
 * member.
 * @throws RetryableError `SOURCE_BROKE` for bytes behind the last member
 */
async function* gunzipped(
  body: AsyncIterable<Buffer>,
): AsyncGenerator<Buffer, void, undefined> {
  const gunzip = createGunzip({ chunkSize: GUNZIP_CHUNK_BYTES });
  let received = 0;
  const counted = async function* (): AsyncGenerator<Buffer, void, undefined> {
    for await (const chunk of body) {
      received += chunk.length;
      yield chunk;
    }
  };
  // The reader of gunzip gets the error; the callback keeps it from being thrown twice.
  const ended = new Promise<Error | null | undefined>((resolve) =>
    pipeline(counted, gunzip, resolve),
  );
  yield* gunzip as AsyncIterable<Buffer>;
  const failed = await ended;
  if (gunzip.bytesWritten < received) {
    throw new RetryableError(
      'Cannot read the answer: other bytes follow its last gzip member; ask again',
      {
        code: 'SOURCE_BROKE',
      },
    );
  }
  if (failed instanceof Error) throw failed;
}

/**
 * The whole body, up to a limit that also stops a decompression bomb.
 * @throws PermanentError `PAGE_TOO_LARGE`
 */
export async function readWhole(
  body: AsyncIterable<Buffer>,
  bytesMax: number,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  if (await collect(body, bytesMax, chunks)) return Buffer.concat(chunks);
  throw new PermanentError(
    `Cannot read the answer: it is larger than ${bytesMax} bytes; ask for smaller ` +
      'pages (SOURCE_PAGE_SIZE)',
    { code: 'PAGE_TOO_LARGE', meta: { bytesMax } },
  );
}

/**
 * The beginning of an error's body. Its status has decided already, so of a broken or
 * huge body the part that came is shown.
 */
export async function readStart(
  body: AsyncIterable<Buffer>,
  bytesMax: number,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  await collect(body, bytesMax, chunks).catch(() => false);
  return Buffer.concat(chunks);
}

/** @returns whether that was all */
async function collect(
  body: AsyncIterable<Buffer>,
  bytesMax: number,
  chunks: Buffer[],
): Promise<boolean> {
  let bytes = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > bytesMax) return false;
  }
  return true;
}
