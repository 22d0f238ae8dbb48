/** One honest source: a dialect, its rows, and the outcome that is right for it. */
import { PLAIN, type Dialect } from './dialect.ts';
import {
  RowMaker,
  type ListName,
  type PartyRow,
  type RowRecipe,
  type Rows,
} from './rows.ts';

export type Verdict = 'complete' | 'incomplete' | 'suspicious' | 'failed';

export interface HonestSource extends Rows {
  readonly dialect: Dialect;
  /** Makes the rows that come next. */
  readonly maker: RowMaker;
}

export interface HonestDialect {
  readonly name: string;
  readonly meaning: string;
  readonly make: () => HonestSource;
  /** The page size that a test should ask for; the lists are sized by it. */
  readonly pageSize: number;
  /** The right verdicts of each list, the best one first. */
  readonly verdicts: Readonly<Record<ListName, readonly Verdict[]>>;
  /** The most requests that a second sync of each list needs where nothing is new. */
  readonly idleRequests: Readonly<Record<ListName, number>>;
  /**
   * Why following the paging rules, from the oldest page on, cannot show every row in its
   * order.
   */
  readonly unreadable?: string;
  /** Plain enough that each fault of the table shows: fit for random scenarios. */
  readonly isFirm: boolean;
}

export interface Choice {
  readonly dialect?: Partial<Dialect>;
  readonly recipe?: Partial<RowRecipe>;
  readonly parties?: number;
  readonly checkpoints?: number;
  /** The party `network`, at the place of its age or without a place. */
  readonly network?: 'first' | 'middle' | 'no-place';
  readonly verdicts?: Partial<Record<ListName, readonly Verdict[]>>;
  readonly idleRequests?: number;
  readonly unreadable?: string;
  readonly isFirm?: boolean;
}

const PAGE_SIZE = 20;
const COMPLETE: readonly Verdict[] = ['complete'];

export function honest(
  name: string,
  meaning: string,
  choice: Choice = {},
): HonestDialect {
  const idle = choice.idleRequests ?? 2;
  return {
    name,
    meaning,
    make: () => makeSource(choice),
    pageSize: PAGE_SIZE,
    verdicts: { parties: COMPLETE, checkpoints: COMPLETE, ...choice.verdicts },
    idleRequests: { parties: idle, checkpoints: idle },
    isFirm: choice.isFirm ?? false,
    ...(choice.unreadable === undefined
      ? {}
      : { unreadable: choice.unreadable }),
  };
}

function makeSource(choice: Choice): HonestSource {
  const maker = new RowMaker(choice.recipe);
  const rows = maker.make(choice.parties ?? 57, choice.checkpoints ?? 83);
  return {
    dialect: { ...PLAIN, ...choice.dialect },
    parties: addNetwork(rows.parties, choice.network),
    checkpoints: rows.checkpoints,
    maker,
  };
}

function addNetwork(
  parties: readonly PartyRow[],
  place: Choice['network'],
): readonly PartyRow[] {
  if (place === undefined) return parties;
  const beside = parties[Math.floor(parties.length / 2)]?.age ?? 1n;
  const age = { first: 0n, middle: beside, 'no-place': null }[place];
  return [{ id: 'network', age }, ...parties];
}
