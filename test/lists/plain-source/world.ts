/**
 * Everything a plain source has: its lists, their cursors, and what it does wrong at
 * present.
 */
import { Cursors } from './cursors.ts';
import type { Dialect } from './dialect.ts';
import { isConsistent, type ActiveFault, type Surroundings } from './fault.ts';
import { putInOrder, type Order } from './order.ts';
import {
  applyDialect,
  cutPage,
  describePage,
  Refusal,
  type ListRequest,
  type Page,
} from './page.ts';
import { Random } from './random.ts';
import {
  checkpointItem,
  makeForeignRows,
  partyItem,
  type Item,
  type ListName,
  type Rows,
} from './rows.ts';

/** Foreign rows have serials of their own, far above. */
const FOREIGN_SERIAL = 1_000_000;
const FOREIGN_ROWS = 400;

export class World implements Surroundings {
  readonly dialect: Dialect;
  readonly random: Random;
  private readonly cursors: Readonly<Record<ListName, Cursors>>;
  readonly foreign: Readonly<Record<ListName, readonly Item[]>>;
  readonly ever: Readonly<Record<ListName, Set<string>>> = {
    parties: new Set(),
    checkpoints: new Set(),
  };
  fault: ActiveFault | undefined;
  private readonly items: Record<ListName, Item[]> = {
    parties: [],
    checkpoints: [],
  };
  private readonly orders = new Map<string, Order>();
  private nextSerial = 1;
  private answers = 0;

  constructor(dialect: Dialect, rows: Rows) {
    this.dialect = dialect;
    this.random = new Random(dialect.seed);
    this.cursors = {
      parties: new Cursors(dialect, this.random),
      checkpoints: new Cursors(dialect, this.random),
    };
    this.append(rows);
    this.foreign = makeForeignItems(dialect.seed, rows);
  }

  append(rows: Partial<Rows>): void {
    for (const row of rows.parties ?? [])
      this.add('parties', partyItem(row, this.nextSerial));
    for (const row of rows.checkpoints ?? [])
      this.add('checkpoints', checkpointItem(row, this.nextSerial));
  }

  /** Adds rows at places of their own age, wherever that is. */
  insert(list: ListName, items: readonly Omit<Item, 'serial'>[]): void {
    for (const item of items)
      this.add(list, { ...item, serial: this.nextSerial });
  }

  private add(list: ListName, item: Item): void {
    this.nextSerial += 1;
    this.items[list].push(item);
    this.ever[list].add(item.key);
    this.orders.clear();
  }

  remove(list: ListName, serials: ReadonlySet<number>): void {
    this.items[list] = this.items[list].filter(
      (item) => !serials.has(item.serial),
    );
    this.orders.clear();
  }

  forgetCursors(list: ListName): void {
    this.cursors[list].forget();
  }

  /** What a healthy source has, oldest first; rows without a place at the end. */
  all(list: ListName): readonly Item[] {
    const items = this.items[list];
    const { dialect } = this;
    const placed = putInOrder(
      items,
      false,
      dialect.ties === 'reshuffled' ? 'mirrored' : dialect.ties,
      dialect.seed,
      0,
    );
    return [...placed.items, ...items.filter((item) => item.age === null)];
  }

  /**
   * What every request sees at present: the rows of a fault that meets all of them, else
   * the true ones.
   */
  served(list: ListName): readonly Item[] {
    const { fault } = this;
    const isSeen =
      fault !== undefined &&
      isConsistent(fault) &&
      (fault.when.list ?? list) === list;
    return this.rows(list, isSeen);
  }

  private rows(list: ListName, isMet: boolean): readonly Item[] {
    const view = isMet ? this.fault?.behaviour.view : undefined;
    return view === undefined
      ? this.all(list)
      : view(this.all(list), list, this);
  }

  /**
   * The page that an honest source of this dialect answers; `isMet`: with the rows that
   * the fault shows.
   */
  honestPage(asked: ListRequest, isMet = false): Page {
    const request = applyDialect(asked, this.dialect);
    if (request.partyId !== undefined)
      return this.lookUp(request, request.partyId, isMet);
    const placeless = this.rows(request.list, isMet).filter(
      (item) => item.age === null,
    );
    const order = this.order(request.list, request.newestFirst, isMet);
    return cutPage(
      request,
      order,
      placeless,
      this.cursors[request.list],
      this.dialect,
    );
  }

  private lookUp(request: ListRequest, partyId: string, isMet: boolean): Page {
    const { partyId: behaviour } = this.dialect;
    if (typeof behaviour === 'number')
      throw new Refusal(behaviour, 'the party is not looked up here');
    if (behaviour === 'ignored') {
      const { partyId: _, ...rest } = request;
      return this.honestPage(rest, isMet);
    }
    const order = this.order('parties', true, isMet);
    const found =
      behaviour === 'empty'
        ? []
        : this.served('parties').filter((item) => item.key === partyId);
    const edges = found.map((item) => ({
      item,
      cursor: this.cursors.parties.write(
        item,
        order.indexes.get(item.serial) ?? 0,
        order,
      ),
    }));
    return describePage(edges, false, false);
  }

  private order(list: ListName, isNewestFirst: boolean, isMet: boolean): Order {
    this.answers += 1;
    const { ties, seed } = this.dialect;
    const isFixed =
      ties !== 'reshuffled' &&
      !(isMet && this.fault?.behaviour.view !== undefined);
    const name = `${list} ${isNewestFirst}`;
    const known = isFixed ? this.orders.get(name) : undefined;
    if (known !== undefined) return known;
    const order = putInOrder(
      this.rows(list, isMet),
      isNewestFirst,
      ties,
      seed,
      this.answers,
    );
    if (isFixed) this.orders.set(name, order);
    return order;
  }
}

function makeForeignItems(
  seed: number,
  rows: Rows,
): Record<ListName, readonly Item[]> {
  const first = rows.checkpoints.at(0)?.atBlock ?? '100';
  const foreign = makeForeignRows(seed, FOREIGN_ROWS, BigInt(first));
  return {
    parties: foreign.parties.map((row, at) =>
      partyItem(row, FOREIGN_SERIAL + at),
    ),
    checkpoints: foreign.checkpoints.map((row, at) =>
      checkpointItem(row, 2 * FOREIGN_SERIAL + at),
    ),
  };
}
