/**
 * What a request asks for, and the page that an honest source of this dialect answers.
 */
import type { Cursors } from './cursors.ts';
import type { Dialect } from './dialect.ts';
import type { Order } from './order.ts';
import type { Item, ListName } from './rows.ts';

export interface ListRequest {
  readonly list: ListName;
  readonly partyId?: string;
  readonly first?: number;
  readonly after?: string;
  readonly last?: number;
  readonly before?: string;
  readonly newestFirst: boolean;
}

export interface Edge {
  readonly cursor: string;
  readonly item: Item;
}

export interface Page {
  readonly edges: readonly Edge[];
  readonly startCursor: string;
  readonly endCursor: string;
  readonly hasNextPage: boolean;
  readonly hasPreviousPage: boolean;
}

/** An answer that is not a page: its status and what it says. */
export class Refusal extends Error {
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** Throws Refusal where the query breaks the interface document. */
export function readRequest(
  list: ListName,
  query: URLSearchParams,
): ListRequest {
  const text = (name: string): string | undefined =>
    query.get(name) ?? undefined;
  const count = (name: string): number | undefined => {
    const value = text(`pagination.${name}`);
    if (value === undefined) return undefined;
    if (
      !/^\d{1,10}$/.test(value) ||
      Number(value) < 1 ||
      Number(value) > 2 ** 31 - 1
    )
      throw new Refusal(400, `pagination.${name} is no number of rows`);
    return Number(value);
  };
  const newestFirst = text('pagination.newestFirst');
  if (
    newestFirst !== undefined &&
    newestFirst !== 'true' &&
    newestFirst !== 'false'
  )
    throw new Refusal(400, 'pagination.newestFirst is no boolean');
  const partyId = list === 'parties' ? text('partyId') : undefined;
  const first = count('first');
  const after = text('pagination.after');
  const last = count('last');
  const before = text('pagination.before');
  if (after === '' || before === '')
    throw new Refusal(400, 'a cursor is empty');
  return {
    list,
    newestFirst: newestFirst !== 'false',
    ...(partyId === undefined ? {} : { partyId }),
    ...(first === undefined ? {} : { first }),
    ...(after === undefined ? {} : { after }),
    ...(last === undefined ? {} : { last }),
    ...(before === undefined ? {} : { before }),
  };
}

/** The request as a source of this dialect understands it. */
export function applyDialect(
  asked: ListRequest,
  dialect: Dialect,
): ListRequest {
  const isBackward = asked.last !== undefined || asked.before !== undefined;
  if (isBackward && dialect.backward === 'refused')
    throw new Refusal(400, 'paging backwards is not served');
  const { last: _, before: __, ...forward } = asked;
  const served = isBackward && dialect.backward === 'served' ? asked : forward;
  if (dialect.newestFirst === 'honoured') return served;
  return { ...served, newestFirst: dialect.newestFirst === 'always-newest' };
}

/** The page of an order; rows without a place come only where no cursor is sent. */
export function cutPage(
  request: ListRequest,
  order: Order,
  placeless: readonly Item[],
  cursors: Cursors,
  dialect: Dialect,
): Page {
  const limit = limitRows(
    request.first ?? request.last ?? dialect.defaultPage,
    dialect,
  );
  const isWithoutCursor =
    request.after === undefined && request.before === undefined;
  const items = isWithoutCursor ? addPlaceless(order, placeless) : order.items;
  const [from, to] = findRange(request, order, items.length, limit, cursors);
  const end = from + fitCharacters(items.slice(from, to), dialect);
  const shift = isWithoutCursor && order.isNewestFirst ? placeless.length : 0;
  const edges = items.slice(from, end).map((item, at) => ({
    item,
    cursor: cursors.write(item, from + at - shift, order),
  }));
  return describePage(edges, end < items.length, from > 0);
}

export function describePage(
  edges: readonly Edge[],
  hasNext: boolean,
  hasPrevious: boolean,
): Page {
  return {
    edges,
    startCursor: edges.at(0)?.cursor ?? '',
    endCursor: edges.at(-1)?.cursor ?? '',
    hasNextPage: hasNext,
    hasPreviousPage: hasPrevious,
  };
}

function addPlaceless(
  order: Order,
  placeless: readonly Item[],
): readonly Item[] {
  return order.isNewestFirst
    ? [...placeless, ...order.items]
    : [...order.items, ...placeless];
}

function findRange(
  request: ListRequest,
  order: Order,
  length: number,
  limit: number,
  cursors: Cursors,
): readonly [number, number] {
  const isForward =
    request.first !== undefined ||
    (request.last === undefined && request.before === undefined);
  if (isForward) {
    const from =
      request.after === undefined
        ? 0
        : findPlace(request.after, order, cursors).behind;
    return [Math.min(from, length), Math.min(from + limit, length)];
  }
  const to =
    request.before === undefined
      ? length
      : findPlace(request.before, order, cursors).inFront;
  return [Math.max(0, to - limit), Math.max(0, to)];
}

function findPlace(
  cursor: string,
  order: Order,
  cursors: Cursors,
): { behind: number; inFront: number } {
  const place = cursors.find(cursor, order);
  if (place === undefined) throw new Refusal(400, 'the cursor is not known');
  return place;
}

function limitRows(asked: number, dialect: Dialect): number {
  const { most } = dialect;
  if (most === undefined || asked <= most.rows) return asked;
  if (most.answer === 'clamp') return most.rows;
  throw new Refusal(most.answer, `at most ${most.rows} rows a page`);
}

function fitCharacters(items: readonly Item[], dialect: Dialect): number {
  const { pageCharacters } = dialect;
  if (pageCharacters === undefined) return items.length;
  let characters = 0;
  const count = items.findIndex((item) => {
    characters += item.key.length;
    return characters > pageCharacters;
  });
  return count === -1 ? items.length : Math.max(1, count);
}
