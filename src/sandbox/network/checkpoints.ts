/**
 * The checkpoints: one row every so many blocks, and now and then several rows of one height (a
 * withdrawal makes one too), some of them the same to the last letter.
 */
import { DAY_MICROS, type Micros } from '../../core/time.ts';
import { TIE_ROWS_MAX } from '../options.ts';
import type { Foundation } from './chain.ts';
import { KIND } from './ids.ts';
import { noise, STREAM } from './random.ts';

/** Heights are laid out in stretches of this many, each with the same number of rows. */
const STRETCH_HEIGHTS = 32;

export interface CheckpointRow {
  atBlock: bigint;
  hash: string;
  blockHash: string;
}

export class Checkpoints {
  readonly #network: Foundation;
  /** Between two checkpoint heights. */
  readonly #spacingBlocks: number;
  readonly #stretchRows: number;

  constructor(network: Foundation) {
    const { tieRows, checkpointIntervalMs } = network.settings;
    this.#network = network;
    this.#spacingBlocks = network.chain.blocksIn(checkpointIntervalMs);
    this.#stretchRows = STRETCH_HEIGHTS - tieRows.length + tieRows.reduce((sum, rows) => sum + rows, 0);
  }

  /** Positions that are served when `block` is the newest: from inclusive, to exclusive. */
  visible(block: number, head: Micros): { from: number; to: number } {
    const { chain, settings } = this.#network;
    const to = this.#rowsBefore(Math.floor(block / this.#spacingBlocks));
    if (settings.checkpointRetentionMs === undefined) return { from: 0, to };
    const oldest = head - BigInt(settings.checkpointRetentionMs) * 1000n;
    return { from: Math.min(to, this.floor(chain.firstFrom(oldest - (oldest % DAY_MICROS)))), to };
  }

  /** The first position at `block` or later. */
  floor(block: number): number {
    return this.#rowsBefore(Math.max(0, Math.ceil(block / this.#spacingBlocks) - 1));
  }

  /**
   * The row at a position.
   * @param turn shifts the rows within one height: the service leaves their order open, and it differs
   *   from one query plan to the next
   */
  row(position: number, turn = 0): CheckpointRow {
    const { slot, before } = this.#slotAt(position);
    const rows = this.#rowsOf(slot);
    const block = (slot + 1) * this.#spacingBlocks;
    const nth = this.#distinct(slot, (position - before + turn) % rows);
    const { chain, ids } = this.#network;
    return {
      atBlock: chain.heightOf(block),
      hash: ids.id(KIND.state, block * TIE_ROWS_MAX + nth),
      blockHash: ids.id(KIND.block, block),
    };
  }

  /** Which of a height's different checkpoints its nth row shows: half of the tied rows repeat the one before. */
  #distinct(slot: number, nth: number): number {
    const word = noise(this.#network.seed, STREAM.checkpointTwins, slot);
    let distinct = nth;
    while (distinct > 0 && ((word >>> (distinct % 32)) & 1) === 1) distinct -= 1;
    return distinct;
  }

  #slotAt(position: number): { slot: number; before: number } {
    let slot = Math.floor(position / this.#stretchRows) * STRETCH_HEIGHTS;
    let before = this.#rowsBefore(slot);
    for (let rows = this.#rowsOf(slot); before + rows <= position; rows = this.#rowsOf(slot)) {
      before += rows;
      slot += 1;
    }
    return { slot, before };
  }

  #rowsBefore(slot: number): number {
    const stretch = Math.floor(slot / STRETCH_HEIGHTS);
    let rows = stretch * this.#stretchRows;
    for (let earlier = stretch * STRETCH_HEIGHTS; earlier < slot; earlier += 1) rows += this.#rowsOf(earlier);
    return rows;
  }

  /** Each tied height lies somewhere in its own section of the stretch. */
  #rowsOf(slot: number): number {
    const { tieRows } = this.#network.settings;
    const sectionHeights = Math.floor(STRETCH_HEIGHTS / tieRows.length);
    const within = slot % STRETCH_HEIGHTS;
    const section = Math.floor(within / sectionHeights);
    const rows = tieRows[section];
    if (rows === undefined) return 1;
    const stretch = Math.floor(slot / STRETCH_HEIGHTS);
    const word = noise(this.#network.seed, STREAM.checkpointTies, stretch * STRETCH_HEIGHTS + section);
    return within === section * sectionHeights + (word % sectionHeights) ? rows : 1;
  }
}
