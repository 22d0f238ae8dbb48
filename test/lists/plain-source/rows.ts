/** The rows that a plain source serves, and makers of more of them. */
import { Random } from './random.ts';

export const LISTS = ['parties', 'checkpoints'] as const;
export type ListName = (typeof LISTS)[number];

/** A party, and when the source first saw it; `null`: it has no place in the order. */
export interface PartyRow {
  readonly id: string;
  readonly age: bigint | null;
}

/** A checkpoint; its age is its height, as decimal text. */
export interface CheckpointRow {
  readonly atBlock: string;
  readonly hash: string;
  readonly blockHash: string;
}

export interface Rows {
  readonly parties: readonly PartyRow[];
  readonly checkpoints: readonly CheckpointRow[];
}

/** One row as the server keeps it. `serial` is its identity, also after it has gone. */
export interface Item {
  readonly serial: number;
  readonly key: string;
  readonly age: bigint | null;
  readonly fields: Readonly<Record<string, string>>;
}

export function checkpointKey(row: CheckpointRow): string {
  return `${row.atBlock}/${row.hash}/${row.blockHash}`;
}

export function partyItem(row: PartyRow, serial: number): Item {
  return { serial, key: row.id, age: row.age, fields: { id: row.id } };
}

export function checkpointItem(row: CheckpointRow, serial: number): Item {
  const { hash, blockHash, atBlock } = row;
  return {
    serial,
    key: checkpointKey(row),
    age: BigInt(atBlock),
    fields: { hash, blockHash, atBlock },
  };
}

export type IdForm =
  | 'hex'
  | 'upper-hex'
  | '0x-hex'
  | 'uuid'
  | 'word'
  | 'long'
  | 'odd';

export interface RowRecipe {
  readonly seed: number;
  readonly ids: IdForm;
  /** Parties that share an age. */
  readonly partiesAtOnce: number;
  /** Checkpoints that share a height. */
  readonly checkpointsAtOnce: number;
  readonly firstHeight: bigint;
  readonly heightStep: bigint;
  readonly hashCharacters: number;
  /** Every so many checkpoints one comes twice, alike in every field. */
  readonly twinEvery: number;
}

export const PLAIN_RECIPE: RowRecipe = {
  seed: 1,
  ids: 'hex',
  partiesAtOnce: 1,
  checkpointsAtOnce: 1,
  firstHeight: 100n,
  heightStep: 7n,
  hashCharacters: 64,
  twinEvery: 0,
};

const WRITE_ID: Readonly<
  Record<IdForm, (random: Random, count: number) => string>
> = {
  hex: (random) => random.hex(64),
  'upper-hex': (random) => random.hex(64).toUpperCase(),
  '0x-hex': (random) => `0x${random.hex(40)}`,
  uuid: (random) =>
    [8, 4, 4, 4, 12].map((characters) => random.hex(characters)).join('-'),
  word: (_, count) => `party-${count}`,
  long: (random) => random.hex(500),
  odd: (random, count) => `Zoë & Söhne/${count} "50%" +${random.hex(4)} #a?b=c`,
};

/**
 * Makes rows that are newer than all it made before: rows of one age come at once, or not
 * at all.
 */
export class RowMaker {
  private readonly recipe: RowRecipe;
  private readonly random: Random;
  private madeParties = 0;
  private madeCheckpoints = 0;
  private lastAge = 0n;
  private lastStep = -1n;

  constructor(recipe: Partial<RowRecipe> = {}) {
    this.recipe = { ...PLAIN_RECIPE, ...recipe };
    this.random = new Random(this.recipe.seed);
  }

  make(parties: number, checkpoints: number): Rows {
    return {
      parties: this.parties(parties),
      checkpoints: this.checkpoints(checkpoints),
    };
  }

  parties(count: number): PartyRow[] {
    const { ids, partiesAtOnce } = this.recipe;
    return Array.from({ length: count }, (_, at) => {
      if (at % partiesAtOnce === 0) this.lastAge += 1000n;
      this.madeParties += 1;
      return {
        id: WRITE_ID[ids](this.random, this.madeParties),
        age: this.lastAge,
      };
    });
  }

  checkpoints(count: number): CheckpointRow[] {
    const { checkpointsAtOnce, twinEvery } = this.recipe;
    const rows: CheckpointRow[] = [];
    for (let at = 0; rows.length < count; at += 1) {
      if (at % checkpointsAtOnce === 0) this.lastStep += 1n;
      this.madeCheckpoints += 1;
      const row = this.checkpoint();
      rows.push(row);
      const isTwin = twinEvery > 0 && this.madeCheckpoints % twinEvery === 0;
      if (isTwin && rows.length < count) rows.push(row);
    }
    return rows;
  }

  private checkpoint(): CheckpointRow {
    const { firstHeight, heightStep, hashCharacters } = this.recipe;
    return {
      atBlock: String(firstHeight + this.lastStep * heightStep),
      hash: this.random.hex(hashCharacters),
      blockHash: this.random.hex(hashCharacters).toUpperCase(),
    };
  }
}

/** The recipe of a network that has nothing in common with another but its heights. */
export function makeForeignRows(
  seed: number,
  count: number,
  firstHeight: bigint,
): Rows {
  return new RowMaker({ seed: seed + 0x5eed, firstHeight }).make(count, count);
}
