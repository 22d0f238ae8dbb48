/**
 * Rows of releases with different columns as one CSV: columns go by name, every field keeps its bytes,
 * and what a release did not send is empty, which is how it writes NULL.
 */
import { PermanentError } from '../core/errors.ts';
import { RowFields } from './row-fields.ts';
import { RowSplitter } from './row-splitter.ts';

const COMMA = 0x2c;
const OUT_BYTES_MIN = 64 * 1_024;

/** The last header, which is the newest release's, and behind it what only the others have. */
export function commonColumns(headers: readonly (readonly string[])[]): readonly string[] {
  return [...new Set([...(headers.at(-1) ?? []), ...headers.flat()])];
}

/**
 * Passes rows with the columns `from` on as rows with the columns `to`, line ends as they are.
 * @param chunks whole rows, cut anywhere
 * @throws PermanentError `ROW_FIELDS` where a row has not as many fields as `from`
 */
export async function* withColumns(
  chunks: AsyncIterable<Buffer>,
  from: readonly string[],
  to: readonly string[],
): AsyncGenerator<Buffer> {
  const sources = to.map((name) => from.indexOf(name));
  const fields = new RowFields();
  const out = new Pieces();
  const splitter = new RowSplitter((buffer, start, end, next) => {
    if (fields.scan(buffer, start, end) !== from.length) {
      throw new PermanentError(
        `Cannot bring a row to common columns: it has ${fields.count} fields, its header ${from.length}`,
        { code: 'ROW_FIELDS' },
      );
    }
    out.reserve(next - start + to.length);
    for (const [at, source] of sources.entries()) {
      if (at > 0) out.addByte(COMMA);
      if (source !== -1) out.add(buffer, fields.rawStart(source), fields.rawEnd(source));
    }
    out.add(buffer, end, next);
  });
  for await (const chunk of chunks) {
    splitter.push(chunk);
    yield* out.take();
  }
}

/** Bytes one after the other, in pieces that are never moved again. */
class Pieces {
  #pieces: Buffer[] = [];
  #piece = Buffer.alloc(0);
  #length = 0;

  /** Room for a row, so that its parts can be added unchecked. */
  reserve(bytes: number): void {
    if (this.#length + bytes <= this.#piece.length) return;
    this.#end();
    this.#piece = Buffer.allocUnsafe(Math.max(OUT_BYTES_MIN, bytes));
  }

  addByte(byte: number): void {
    this.#piece[this.#length] = byte;
    this.#length += 1;
  }

  add(buffer: Buffer, start: number, end: number): void {
    this.#length += buffer.copy(this.#piece, this.#length, start, end);
  }

  /** What was added since. */
  take(): readonly Buffer[] {
    this.#end();
    return this.#pieces.splice(0);
  }

  #end(): void {
    if (this.#length > 0) this.#pieces.push(this.#piece.subarray(0, this.#length));
    this.#piece = this.#piece.subarray(this.#length);
    this.#length = 0;
  }
}
