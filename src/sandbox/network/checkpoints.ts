/**
 * The checkpoints: one row every so many blocks, and now and then several rows of one height (a
 * withdrawal makes one too), some of them the same to the last letter.
 */
import { DAY_MICROS, type Micros } from '../../core/time.ts';
import { TIE_ROWS_MAX } from '../options.ts';
import type { Foundation } from './chain.ts';
import { KIND, noise, STREAM } from './seeded.ts';

/** Heights are laid out in stretches of this many, each with the same number of rows. */
const STRETCH_HEIGHTS = 32;

export interface CheckpointRow {
  readonly atBlock: bigint;
  readonly hash: string;
  readonly blockHash: string;
}

export interface Checkpoints {
  /** Positions that are served when `block` is the newest: from inclusive, to exclusive. */
  visible(block: number, head: Micros): { from: number; to: number };
  /** The first position at `block` or later. */
  floor(block: number): number;
  /**
   * The row at a position.
   * @param turn shifts the rows within one height: the service leaves their order open, and it differs
   *   from one query plan to the next
   */
  row(position: number, turn?: number): CheckpointRow;
}

export function openCheckpoints({ seed, settings, chain, ids }: Foundation): Checkpoints {
  const { tieRows, checkpointRetentionMs } = settings;
  /** Between two checkpoint heights. */
  const spacingBlocks = chain.blocksIn(settings.checkpointIntervalMs);
  /** Each tied height lies somewhere in a section of its own of the stretch. */
  const sectionHeights = Math.floor(STRETCH_HEIGHTS / tieRows.length);
  const stretchRows = tieRows.reduce((sum, rows) => sum + rows - 1, STRETCH_HEIGHTS);

  function rowsOf(nthHeight: number): number {
    const within = nthHeight % STRETCH_HEIGHTS;
    const section = Math.floor(within / sectionHeights);
    const word = noise(seed, STREAM.checkpointTies, nthHeight - within + section);
    const isTied = within === section * sectionHeights + (word % sectionHeights);
    return (isTied ? tieRows[section] : undefined) ?? 1;
  }

  /** How many rows the heights before the nth have. */
  function rowsBefore(nth: number): number {
    const within = nth % STRETCH_HEIGHTS;
    let rows = Math.floor(nth / STRETCH_HEIGHTS) * stretchRows;
    for (let height = nth - within; height < nth; height += 1) rows += rowsOf(height);
    return rows;
  }

  function floor(block: number): number {
    return rowsBefore(Math.max(0, Math.ceil(block / spacingBlocks) - 1));
  }

  /** Which of a height's different checkpoints its nth row shows: half of the tied rows repeat the one before. */
  function distinct(nthHeight: number, nth: number): number {
    const word = noise(seed, STREAM.checkpointTwins, nthHeight);
    let shown = nth;
    while (shown > 0 && ((word >>> (shown % 32)) & 1) === 1) shown -= 1;
    return shown;
  }

  return {
    floor,
    visible(block, head) {
      const to = rowsBefore(Math.floor(block / spacingBlocks));
      if (checkpointRetentionMs === undefined) return { from: 0, to };
      const oldest = head - BigInt(checkpointRetentionMs) * 1000n;
      return { from: Math.min(to, floor(chain.firstFrom(oldest - (oldest % DAY_MICROS)))), to };
    },
    row(position, turn = 0) {
      let height = Math.floor(position / stretchRows) * STRETCH_HEIGHTS;
      let before = rowsBefore(height);
      let rows = rowsOf(height);
      while (before + rows <= position) {
        before += rows;
        height += 1;
        rows = rowsOf(height);
      }
      const block = (height + 1) * spacingBlocks;
      const nth = distinct(height, (position - before + turn) % rows);
      return {
        atBlock: chain.heightOf(block),
        hash: ids.id(KIND.state, block * TIE_ROWS_MAX + nth),
        blockHash: ids.id(KIND.block, block),
      };
    },
  };
}
