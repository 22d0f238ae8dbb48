/**
 * Files with the lines that a load sends to the database. The build of the lake that
 * follows in the same process reads them, so that the database need not send the rows
 * back. The files are only a shortcut: the database sends every row that is not in them.
 */
import { createWriteStream, type WriteStream } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import { join } from 'node:path';
import { errorCode } from '../errors/errors.ts';
import type { MonthLines, RowSink } from './store/copy-sink.ts';

/** Maximum size of all files together. Lines that would exceed it are not written. */
const BYTES_MAX = 4 * 2 ** 30;
/**
 * Maximum share of the free disk space. An embedded Postgres often has its data on the
 * same disk, and stops when the disk is full.
 */
const FREE_SHARE_MAX = 1 / 4;
/** Maximum number of months of a part, each of which has an open file. */
const MONTHS_MAX = 240;
/**
 * Number of segments in a part. For each file that a build writes, it reads all parts
 * that contain segments of the file. A part therefore has no more segments than one file
 * of the lake; a larger part would be read again for each of several files.
 */
const PART_SEGMENTS = 1_000;

/**
 * Whether the files can be used for a segment.
 * - `writing`: the segment's transaction has not ended yet
 * - `whole`: the transaction was committed, and the files have every line exactly once
 * - `unusable`: the transaction failed, or lines are missing, duplicated or not plain
 */
type SegmentState = 'writing' | 'whole' | 'unusable';

interface WrittenSegment {
  readonly part: Part;
  state: SegmentState;
}

/** Files of some segments, one for each month. */
interface Part {
  readonly number: number;
  readonly files: Map<string, WriteStream>;
  /** Number of segments that were begun, and of those that are still being written. */
  segments: number;
  writing: number;
}

export class LineFiles implements AsyncDisposable {
  readonly #folder: string;
  readonly #bytesMax: number;
  readonly #partSegments: number;
  readonly #segments = new Map<bigint, WrittenSegment>();
  #part = newPart(0);
  readonly #open = new Set([this.#part]);
  #bytes = 0;
  #failure: string | undefined;

  /**
   * @param bytesMax maximum size of all files together
   */
  constructor(
    folder: string,
    bytesMax: number,
    partSegments: number = PART_SEGMENTS,
  ) {
    this.#folder = folder;
    this.#bytesMax = bytesMax;
    this.#partSegments = partSegments;
  }

  /**
   * Opens files in an existing folder, which the caller removes afterwards. The files
   * take at most 4 GiB, and at most a quarter of the free disk space. Nothing is written
   * if the free disk space is unknown.
   */
  static async open(folder: string): Promise<LineFiles> {
    const freeBytes = await statfs(folder).then(
      ({ bavail, bsize }) => bavail * bsize,
      () => 0,
    );
    const bytesMax = Math.min(BYTES_MAX, FREE_SHARE_MAX * freeBytes);
    return new LineFiles(folder, bytesMax);
  }

  /**
   * The code of the error that ended the writing of files; undefined if there was none.
   */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** Returns a sink that also writes the lines of a segment to the files. */
  copyTo(segmentId: bigint, sink: RowSink): RowSink {
    const segment = this.#begin(segmentId);
    return {
      write: async (months) => {
        await sink.write(months);
        await this.#write(segment, months);
      },
      finish: () => sink.finish(),
    };
  }

  /**
   * Ends the writing of segments.
   * @param isCommitted whether their rows were committed to the database
   */
  end(segmentIds: readonly bigint[], isCommitted: boolean): void {
    for (const id of segmentIds) {
      const segment = this.#segments.get(id);
      if (segment?.state !== 'writing') continue;
      this.#settle(segment, isCommitted ? 'whole' : 'unusable');
    }
  }

  /**
   * Returns the number of the part that contains a segment: its files have every line of
   * the segment exactly once. Undefined if there is no such part.
   */
  partOf(segmentId: bigint): number | undefined {
    const segment = this.#segments.get(segmentId);
    return this.#failure === undefined && segment?.state === 'whole'
      ? segment.part.number
      : undefined;
  }

  /** Returns the path of the file with a part's lines of a month. */
  pathOf(month: string, part: number): string {
    return join(this.#folder, `${part}-${month}.lines`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const part of this.#open) {
      close(part);
      // An error was recorded when it occurred.
      for (const file of part.files.values())
        await finished(file).catch(() => undefined);
    }
  }

  #begin(segmentId: bigint): WrittenSegment {
    const earlier = this.#segments.get(segmentId);
    if (earlier !== undefined) {
      // Lines of an attempt that was rolled back are still in the files.
      if (earlier.state === 'writing') this.#settle(earlier, 'unusable');
      earlier.state = 'unusable';
      return earlier;
    }
    if (this.#part.segments >= this.#partSegments) {
      const full = this.#part;
      this.#part = newPart(full.number + 1);
      this.#open.add(this.#part);
      this.#closeIfDone(full);
    }
    this.#part.segments += 1;
    this.#part.writing += 1;
    const segment: WrittenSegment = { part: this.#part, state: 'writing' };
    this.#segments.set(segmentId, segment);
    return segment;
  }

  #settle(segment: WrittenSegment, state: SegmentState): void {
    segment.state = state;
    segment.part.writing -= 1;
    this.#closeIfDone(segment.part);
  }

  /** Closes the files of a part that gets no more lines. */
  #closeIfDone(part: Part): void {
    if (part === this.#part || part.writing > 0) return;
    this.#open.delete(part);
    close(part);
  }

  async #write(
    segment: WrittenSegment,
    months: readonly MonthLines[],
  ): Promise<void> {
    for (const { month, lines, isPlain } of months) {
      if (segment.state !== 'writing') return;
      const file = this.#fileOf(segment.part, month);
      const hasRoom = this.#bytes + lines.length <= this.#bytesMax;
      if (!isPlain || !hasRoom || file === undefined) {
        this.#settle(segment, 'unusable');
        return;
      }
      this.#bytes += lines.length;
      await new Promise<void>((resolve) => {
        // The load goes on without the files if one of them cannot be written.
        file.write(lines, (error) => {
          if (error) this.#failure ??= errorCode(error);
          resolve();
        });
      });
    }
  }

  #fileOf({ number, files }: Part, month: string): WriteStream | undefined {
    if (this.#failure !== undefined) return undefined;
    const existing = files.get(month);
    if (existing !== undefined) return existing;
    if (files.size >= MONTHS_MAX) return undefined;
    const file = createWriteStream(this.pathOf(month, number), { mode: 0o600 });
    file.on('error', (error) => {
      this.#failure ??= errorCode(error);
    });
    files.set(month, file);
    return file;
  }
}

function newPart(number: number): Part {
  return { number, files: new Map(), segments: 0, writing: 0 };
}

function close({ files }: Part): void {
  for (const file of files.values()) file.end();
}
