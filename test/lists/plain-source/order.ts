/** Rows in one of the two orders, ties as the dialect has them. */
import type { TieOrder } from './dialect.ts';
import { scatter } from './random.ts';
import type { Item } from './rows.ts';

export interface Order {
  /** In the order that was asked for; rows without a place are not among them. */
  readonly items: readonly Item[];
  readonly indexes: ReadonlyMap<number, number>;
  readonly isNewestFirst: boolean;
}

/**
 * `items` as they came. `shuffle` changes with each answer of a source that reshuffles.
 */
export function putInOrder(
  items: readonly Item[],
  isNewestFirst: boolean,
  ties: TieOrder,
  seed: number,
  shuffle: number,
): Order {
  const placed = items.filter((item) => item.age !== null);
  const compareTies = chooseTies(ties, isNewestFirst, seed, shuffle);
  const sorted = placed.toSorted((a, b) => {
    const byAge = compareAges(a, b);
    if (byAge === 0) return compareTies(a, b);
    return isNewestFirst ? -byAge : byAge;
  });
  return {
    items: sorted,
    indexes: new Map(sorted.map((item, at) => [item.serial, at])),
    isNewestFirst,
  };
}

type Compare = (a: Item, b: Item) => number;

function chooseTies(
  ties: TieOrder,
  isNewestFirst: boolean,
  seed: number,
  shuffle: number,
): Compare {
  const turn = isNewestFirst ? -1 : 1;
  const orders: Record<TieOrder, Compare> = {
    mirrored: (a, b) => turn * (a.serial - b.serial),
    'by-insertion': (a, b) => a.serial - b.serial,
    'by-id': compareKeys,
    'by-id-mirrored': (a, b) => turn * compareKeys(a, b),
    scattered: compareScattered(seed + turn),
    reshuffled: compareScattered(seed + shuffle),
  };
  return orders[ties];
}

function compareScattered(seed: number): Compare {
  const place = (item: Item): number =>
    scatter(`${item.serial}:${item.key}`, seed);
  return (a, b) => place(a) - place(b) || a.serial - b.serial;
}

function compareKeys(a: Item, b: Item): number {
  if (a.key === b.key) return a.serial - b.serial;
  return a.key < b.key ? -1 : 1;
}

function compareAges(a: Item, b: Item): number {
  const left = a.age ?? 0n;
  const right = b.age ?? 0n;
  if (left === right) return 0;
  return left < right ? -1 : 1;
}
