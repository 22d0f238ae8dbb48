/**
 * Files with the lines that a load sends to the database, one for each month. The build of
 * the lake that follows in the same process reads them, so that the database need not send
 * the rows back. They are only a shortcut: rows that are not in them, for whatever reason,
 * come from the database.
 */
import { createWriteStream, type WriteStream } from 'node:fs';
import { statfs } from 'node:fs/promises';
import { finished } from 'node:stream/promises';
import { join } from 'node:path';
import { errorCode } from '../errors/errors.ts';
import type { MonthLines, RowSink } from './store/copy-sink.ts';

/** Maximum size of all files together. The rows of later segments are not written. */
const BYTES_MAX = 4 * 2 ** 30;
/**
 * Maximum share of the free disk space. An embedded Postgres often has its data on the same
 * disk, and ends if that is full.
 */
const FREE_SHARE_MAX = 1 / 4;
/** Maximum number of months, each of which has an open file. */
const MONTHS_MAX = 240;

/**
 * What the files have of a segment: `writing` until its transaction is committed,
 * afterwards `whole`; `unusable` if its lines are missing, are there twice, or are not
 * plain.
 */
type SegmentState = 'writing' | 'whole' | 'unusable';

export class LineFiles implements AsyncDisposable {
  readonly #folder: string;
  readonly #bytesMax: number;
  readonly #segments = new Map<bigint, SegmentState>();
  readonly #files = new Map<string, WriteStream>();
  #bytes = 0;
  #failure: string | undefined;

  /**
   * @param bytesMax maximum size of all files together
   */
  constructor(folder: string, bytesMax: number) {
    this.#folder = folder;
    this.#bytesMax = bytesMax;
  }

  /**
   * Opens files in an existing folder, which the caller removes afterwards. They take at
   * most 4 GiB and a quarter of the free disk space; nothing if that is not known.
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
    // Lines of an attempt that was rolled back are still in the files.
    const isFirst = !this.#segments.has(segmentId);
    this.#segments.set(segmentId, isFirst ? 'writing' : 'unusable');
    return {
      write: async (months) => {
        await sink.write(months);
        await this.#write(segmentId, months);
      },
      finish: () => sink.finish(),
    };
  }

  /** Marks segments whose rows were committed to the database. */
  commit(segmentIds: readonly bigint[]): void {
    for (const id of segmentIds)
      if (this.#segments.get(id) === 'writing') this.#segments.set(id, 'whole');
  }

  /** Whether all lines of a segment are in the files, each of them once. */
  holds(segmentId: bigint): boolean {
    return (
      this.#failure === undefined && this.#segments.get(segmentId) === 'whole'
    );
  }

  /** Returns the path of a month's file, which has lines of other segments as well. */
  pathOf(month: string): string {
    return join(this.#folder, `${month}.lines`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const file of this.#files.values()) {
      file.end();
      // An error was recorded when it occurred.
      await finished(file).catch(() => undefined);
    }
  }

  async #write(
    segmentId: bigint,
    months: readonly MonthLines[],
  ): Promise<void> {
    for (const { month, lines, isPlain } of months) {
      if (this.#segments.get(segmentId) !== 'writing') return;
      const file = this.#fileOf(month);
      const hasRoom = this.#bytes + lines.length <= this.#bytesMax;
      if (!isPlain || !hasRoom || file === undefined) {
        this.#segments.set(segmentId, 'unusable');
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

  #fileOf(month: string): WriteStream | undefined {
    if (this.#failure !== undefined) return undefined;
    const existing = this.#files.get(month);
    if (existing !== undefined) return existing;
    if (this.#files.size >= MONTHS_MAX) return undefined;
    const file = createWriteStream(this.pathOf(month), { mode: 0o600 });
    file.on('error', (error) => {
      this.#failure ??= errorCode(error);
    });
    this.#files.set(month, file);
    return file;
  }
}
