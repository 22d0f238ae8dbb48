/** A response body: decompressed, counted, and always read with a time limit. */
import { pipeline } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { PermanentError, RetryableError } from '../../errors/errors.ts';

const GUNZIP_CHUNK_BYTES = 256 * 1024;
const ENCODING_SHOWN_MAX = 40;

export interface DripLimit {
  /** The lowest acceptable average rate; a slower stream is considered stalled. */
  readonly bytesPerSecondMin: number;
  /** Length of the averaging window. Only time spent waiting for the source counts. */
  readonly windowMs: number;
}

/**
 * Detects a stream that is kept alive by a trickle of bytes. Only the time spent
 * waiting counts, because a busy consumer does not make the source slow.
 */
export class DripGuard {
  readonly #limit: DripLimit;
  /**
   * Until the first useful byte, the window is as long as the timeout for the headers,
   * because blank lines may keep a slow query's connection alive.
   */
  #windowMs: number;
  #waitedMs = 0;
  #bytes = 0;
  /** All bytes that arrived over the wire. */
  wireBytes = 0;

  constructor(limit: DripLimit, beginMs = limit.windowMs) {
    this.#limit = limit;
    this.#windowMs = Math.max(beginMs, limit.windowMs);
  }

  /**
   * Counts bytes that have arrived and the time spent waiting for them.
   * @throws RetryableError `SOURCE_DRIP` if the average rate is too low
   */
  arrived(bytes: number, waitedMs: number): void {
    const { bytesPerSecondMin, windowMs } = this.#limit;
    this.#bytes += bytes;
    this.#waitedMs += waitedMs;
    if (bytes > 0) this.#windowMs = windowMs;
    if (this.#waitedMs < this.#windowMs) return;
    const bytesPerSecond = (this.#bytes * 1000) / this.#waitedMs;
    if (bytesPerSecond < bytesPerSecondMin) {
      const seconds = Math.round(this.#waitedMs / 1000);
      const pace = `${Math.floor(bytesPerSecond)} bytes a second`;
      throw new RetryableError(
        `Cannot read the response: only ${pace} arrived for ${seconds} s`,
        { code: 'SOURCE_DRIP', meta: { bytesPerSecond, windowMs } },
      );
    }
    this.#waitedMs = 0;
    this.#bytes = 0;
  }

  /**
   * Passes on the bytes from the wire, counts them and checks their rate.
   * @param usefulBytes returns how many bytes of the requested content have arrived; by
   *   default, all bytes count
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
 * Decompresses according to `Content-Encoding`. Errors of the body are thrown by the
 * result.
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` for an encoding that was not requested
 */
export function decoded(
  body: AsyncIterable<Buffer>,
  encoding: string,
): AsyncIterable<Buffer> {
  const name = encoding.trim().toLowerCase();
  if (name === '' || name === 'identity') return body;
  if (name === 'gzip' || name === 'x-gzip') return gunzipped(body);
  const shown = name.slice(0, ENCODING_SHOWN_MAX);
  throw new RetryableError(
    'Cannot read the response: it is encoded as ' +
      `${JSON.stringify(shown)}, which was not requested`,
    { code: 'ANSWER_NOT_UNDERSTOOD', meta: { encoding: shown } },
  );
}

/**
 * Decompresses every gzip member to its end. If a zero byte follows a member, Node's
 * gunzip ignores everything from there on, so the number of bytes that it has read is
 * compared with the number that arrived.
 * @throws RetryableError `SOURCE_BROKE` if there are bytes after the last member
 */
async function* gunzipped(
  body: AsyncIterable<Buffer>,
): AsyncGenerator<Buffer, void, undefined> {
  const gunzip = createGunzip({ chunkSize: GUNZIP_CHUNK_BYTES });
  let received = 0;

  async function* counted(): AsyncGenerator<Buffer, void, undefined> {
    for await (const chunk of body) {
      received += chunk.length;
      yield chunk;
    }
  }

  // The consumer of `gunzip` gets the error; the callback keeps it from being thrown
  // twice.
  const ended = new Promise<Error | null | undefined>((resolve) =>
    pipeline(counted, gunzip, resolve),
  );
  yield* gunzip as AsyncIterable<Buffer>;
  const failed = await ended;
  if (gunzip.bytesWritten < received) {
    throw new RetryableError(
      'Cannot read the response: other bytes follow its last gzip ' +
        'member; request it again',
      { code: 'SOURCE_BROKE' },
    );
  }
  if (failed instanceof Error) throw failed;
}

/**
 * Reads the whole body, up to a limit that also stops decompression bombs.
 * @throws PermanentError `PAGE_TOO_LARGE`
 */
export async function readWhole(
  body: AsyncIterable<Buffer>,
  bytesMax: number,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  if (await collect(body, bytesMax, chunks)) return Buffer.concat(chunks);
  throw new PermanentError(
    `Cannot read the response: it is larger than ${bytesMax} bytes; ` +
      'request smaller pages (SOURCE_PAGE_SIZE)',
    { code: 'PAGE_TOO_LARGE', meta: { bytesMax } },
  );
}

/**
 * Reads the beginning of an error body. The status has already determined the outcome, so
 * if the body breaks off or is huge, the part that arrived is enough.
 */
export async function readStart(
  body: AsyncIterable<Buffer>,
  bytesMax: number,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  await collect(body, bytesMax, chunks).catch(() => false);
  return Buffer.concat(chunks);
}

/**
 * Reads chunks up to a limit.
 * @returns whether the body ended within `bytesMax`
 */
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
