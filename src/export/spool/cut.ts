/**
 * Cuts a spooled object that is larger than a segment may be, at whole seconds and without asking the
 * source again: one more pass over the spool for every few windows.
 */
import { createReadStream } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { PermanentError } from '../../core/errors.ts';
import type { Micros } from '../../core/time.ts';
import { hashRow, RowDigest } from '../../ledger/digest.ts';
import { layoutOf } from '../../ledger/header.ts';
import type { Compression } from '../../ledger/object-keys.ts';
import { RowFields } from '../../ledger/row-fields.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import { VegaTimeReader } from '../../ledger/vega-time.ts';
import { plainStream } from '../../ledger/plain-stream.ts';
import { instantOf, type ReceivedSegment } from './segment-spool.ts';
import { type Spooled, SpoolWriter, Tally } from './spool-writer.ts';
import { secondOf } from '../validate/tail.ts';

/** Each has a compressor's memory. */
const PIECES_PER_PASS_MAX = 4;

export interface CutOptions {
  readonly segmentBytesMax: number;
  readonly compression: Compression;
  readonly header: Buffer;
  readonly columns: readonly string[];
  readonly spoolFile: () => Promise<{ name: string; path: string }>;
}

/** A closed range with its spooled object; `to` is known. */
export type ClosedPart = ReceivedSegment & { readonly to: Micros; readonly spooled: Spooled };

/** @returns the part itself where it is small enough, or cannot be cut: one second is never divided */
export async function cutPart(
  part: ClosedPart,
  options: CutOptions,
  signal: AbortSignal,
): Promise<ClosedPart[]> {
  if (part.spooled.bytes <= BigInt(options.segmentBytesMax)) return [part];
  const cuts = part.spooled.histogram.cuts(options.segmentBytesMax - options.header.length);
  if (cuts.length === 0) return [part];
  const borders = [part.from, ...cuts.map(instantOf), part.to];
  const ranges = borders.slice(1).map((to, index) => ({ from: borders[index] ?? part.from, to }));
  const windows: ClosedPart[] = [];
  for (let done = 0; done < ranges.length; done += PIECES_PER_PASS_MAX) {
    windows.push(...(await onePass(part, ranges.slice(done, done + PIECES_PER_PASS_MAX), options, signal)));
  }
  checkSum(part, windows);
  await unlink(part.spooled.path);
  const finer: ClosedPart[] = [];
  for (const piece of windows) finer.push(...(await cutPart(piece, options, signal)));
  return finer;
}

interface Piece {
  readonly from: Micros;
  readonly to: Micros;
  readonly firstSecond: number;
  readonly endSecond: number;
  readonly writer: SpoolWriter;
  readonly tally: Tally;
  readonly pending: Buffer[];
}

async function onePass(
  part: ClosedPart,
  ranges: readonly { from: Micros; to: Micros }[],
  options: CutOptions,
  signal: AbortSignal,
): Promise<ClosedPart[]> {
  await using writers = new AsyncDisposableStack();
  const windows: Piece[] = [];
  for (const range of ranges) {
    const tally = new Tally();
    const spool = await options.spoolFile();
    const writer = writers.use(await SpoolWriter.create(spool, options.header, options.compression, tally));
    const [firstSecond, endSecond] = [secondOf(range.from), secondOf(range.to)];
    windows.push({ ...range, firstSecond, endSecond, writer, tally, pending: [] });
  }
  const splitter = new RowSplitter(router(windows, options.columns));
  const stored = createReadStream(part.spooled.path, { signal, highWaterMark: 2 ** 20 });
  let writing: Promise<unknown> = Promise.resolve();
  for await (const chunk of plainStream(stored, options.compression)) {
    splitter.push(chunk as Buffer);
    const before = writing;
    writing = Promise.all(windows.map(({ writer, pending }) => writer.writeJoined(pending.splice(0))));
    writing.catch(() => undefined);
    // One chunk is written while the next is read; more never queue up.
    await before;
  }
  await writing;
  const done: ClosedPart[] = [];
  for (const { from, to, writer } of windows) {
    done.push({ from, to, open: false, spooled: await writer.finish() });
  }
  return done;
}

/** Sends each row to the piece its second lies in; rows of other passes are passed over. */
function router(
  windows: readonly Piece[],
  columns: readonly string[],
): (buffer: Buffer, start: number, end: number, next: number) => void {
  const timeColumn = layoutOf(columns).index.vega_time;
  const fields = new RowFields();
  const time = new VegaTimeReader();
  let isHeader = true;
  return (buffer, start, end, next) => {
    if (isHeader) {
      isHeader = false;
      return;
    }
    fields.scan(buffer, start, end);
    time.read(buffer, fields.start(timeColumn), fields.end(timeColumn));
    const { second, zoneSeconds } = time;
    const piece = windows.find(
      (candidate) => second >= candidate.firstSecond && second < candidate.endSecond,
    );
    if (piece === undefined) return;
    piece.tally.add(hashRow(buffer, start, end), second, zoneSeconds, next - start);
    piece.pending.push(buffer.subarray(start, next));
  };
}

/** The windows add up to the whole, or the disk has lied. */
function checkSum(part: ClosedPart, windows: readonly ClosedPart[]): void {
  const sum = new RowDigest();
  for (const { spooled } of windows) sum.merge(RowDigest.fromHex(spooled.digest, spooled.rows));
  if (sum.equals(RowDigest.fromHex(part.spooled.digest, part.spooled.rows))) return;
  throw new PermanentError(
    'Cannot cut the spooled export: its windows do not add up to it; check the disk of the object store',
    { code: 'SPOOL_CORRUPT', meta: { rows: part.spooled.rows, pieceRows: sum.rows } },
  );
}
