/**
 * The truth of a made-up network: its parties, checkpoints and ledger entries by block.
 * The nodes of a fleet show parts of it (node.ts).
 */
import { formatInstant, type Micros } from '../../src/time/time.ts';
import { writeRow13 } from '../ledger/csv.ts';
import type { Random } from '../lists/plain-source/random.ts';

const SECOND = 1_000_000n;
const BLOCK_MICROS = 600n * SECOND;
export const BLOCKS_A_DAY = 144n;

/** When a row came into being, and when it went, as nodes see it. */
interface Lifetime {
  /** The block that the row belongs to: its place in the order. */
  readonly height: bigint;
  /**
   * The block at which nodes have the row. It is later than `height` if the row was
   * inserted among older ones.
   */
  readonly shownFrom: bigint;
  /** The block from which on the row is not served any more. */
  removedAt: bigint | undefined;
}

export interface Party extends Lifetime {
  /** Lower-case hex: the id under which the mirror stores the party. */
  readonly id: string;
  /** The id as the source spells it. */
  spelling: string;
}

export interface Checkpoint extends Lifetime {
  readonly hash: string;
  readonly blockHash: string;
}

export interface Entry {
  readonly party: string;
  readonly time: Micros;
  readonly height: bigint;
  /** Its quantity, which no other entry has. */
  readonly number: string;
  /** The line of the CSV. */
  readonly row: string;
}

export interface ChainStart {
  readonly height: bigint;
  readonly time: Micros;
  readonly parties: number;
  readonly checkpoints: number;
  /** Entries are numbered from here on. */
  readonly firstNumber: number;
}

export class Chain {
  readonly #random: Random;
  height: bigint;
  /** The time of block `height`. */
  time: Micros;
  readonly parties: Party[] = [];
  readonly checkpoints: Checkpoint[] = [];
  readonly entries: Entry[] = [];
  #entryNumber: number;

  constructor(random: Random, start: ChainStart) {
    this.#random = random;
    this.height = start.height;
    this.time = start.time;
    this.#entryNumber = start.firstNumber;
    for (let left = start.parties; left > 0; left -= 1)
      this.#addParty(this.height - BigInt(left) * 3n);
    for (let left = start.checkpoints; left > 0; left -= 1)
      this.#addCheckpoint(this.height - BigInt(left) * 3n);
    const fiveDaysBefore = this.height - 5n * BLOCKS_A_DAY;
    this.#book(fiveDaysBefore > 0n ? fiveDaysBefore : 0n, 6);
  }

  /** Adds blocks, and what happens in them. */
  grow(blocks: bigint): void {
    const random = this.#random;
    const before = this.height;
    this.height += blocks;
    this.time += blocks * BLOCK_MICROS;
    const draw = () =>
      this.height - BigInt(random.between(0, Number(blocks) - 1));
    const heights = (most: number) =>
      Array.from({ length: random.between(0, most) }, draw).toSorted(byValue);
    for (const height of heights(3)) this.#addParty(height);
    for (const height of heights(6)) this.#addCheckpoint(height);
    this.#book(before, 4);
  }

  /** Rows appear among older ones, as after a repair of the nodes. */
  insert(): void {
    const oldest = this.checkpoints[0]?.height ?? 1n;
    const span = Number(this.height - oldest);
    const height = () => oldest + BigInt(this.#random.between(0, span - 1));
    for (let left = this.#random.between(1, 3); left > 0; left -= 1) {
      this.#addParty(height(), this.height);
      this.#addCheckpoint(height(), this.height);
    }
  }

  removeParty(): void {
    const listed = this.parties.filter(
      ({ removedAt }) => removedAt === undefined,
    );
    if (listed.length < 8) return;
    this.#random.pick(listed).removedAt = this.height;
  }

  /** From now on every node writes the ids of all parties in the other case. */
  respell(): void {
    const isLower = this.parties.every(({ id, spelling }) => spelling === id);
    for (const party of this.parties)
      party.spelling = isLower ? party.id.toUpperCase() : party.id;
  }

  timeOf(height: bigint): Micros {
    return this.time - (this.height - height) * BLOCK_MICROS;
  }

  #addParty(height: bigint, shownFrom = height): void {
    const id = this.#random.hex(64);
    const life = { height, shownFrom, removedAt: undefined };
    this.parties.push({ id, spelling: id, ...life });
  }

  #addCheckpoint(height: bigint, shownFrom = height): void {
    const life = { height, shownFrom, removedAt: undefined };
    const hash = this.#random.hex(64);
    this.checkpoints.push({ hash, blockHash: this.#random.hex(64), ...life });
  }

  /** Books entries of about half of the parties, in the blocks above `before`. */
  #book(before: bigint, most: number): void {
    const random = this.#random;
    for (const [at, { id, removedAt }] of this.parties.entries()) {
      if (removedAt !== undefined || at % 2 === 1) continue;
      for (let left = random.between(0, most); left > 0; left -= 1) {
        const blocks = Number(this.height - before);
        const height = before + BigInt(random.between(1, blocks));
        const within = BigInt(random.between(1, 599_999_999));
        const time = this.timeOf(height) - within;
        this.#entryNumber += 1;
        const row = writeRow13(
          {
            time: formatInstant(time).replace('T', ' ').replace('Z', '+00'),
            quantity: BigInt(this.#entryNumber),
            type: 'WIN',
            from: id,
            to: 'network',
            asset: 'c0'.repeat(32),
            market: '',
          },
          `-${this.#entryNumber}`,
        );
        const number = String(this.#entryNumber);
        this.entries.push({ party: id, time, height, number, row });
      }
    }
  }
}

function byValue(one: bigint, other: bigint): number {
  return Number(one - other);
}
