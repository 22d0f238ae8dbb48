/**
 * How the service computes a page, oddities included: one or two rows more than asked are read, and which
 * of them are dropped and what `hasNextPage` says is inferred from how many came.
 */
import { ServiceError } from './errors.ts';

/** The service's own page size where a request names none. */
const PAGE_ROWS_DEFAULT = 1000;
/** What crosses from the service to its HTTP side in one message. */
const ANSWER_BYTES_MAX = 20_971_520;
const INT32_MAX = 2_147_483_647;

/** The pagination parameters of a request, as they came. */
export interface PageParameters {
  first?: number | undefined;
  after?: string | undefined;
  last?: number | undefined;
  before?: string | undefined;
  newestFirst?: boolean | undefined;
}

/** A request for a page, checked. `rowsMax` undefined: every row. */
export interface PageRequest {
  direction: 'forward' | 'backward' | 'none';
  rowsMax: number | undefined;
  /** The JSON text that a cursor is base64 of. */
  cursor: string | undefined;
  newestFirst: boolean;
}

/** Where a cursor stands among the positions of a list. */
export type CursorPlace =
  /** A cursor without a value: the query gets no predicate. */
  | { kind: 'empty' }
  /** A cursor whose value is NULL: no row compares with it. */
  | { kind: 'null' }
  /** `floor`: first position not before the cursor; `ceil`: first position behind it. */
  | { kind: 'between'; floor: number; ceil: number };

/** A list by position, oldest first. Rows that no cursor can reach stand at the end. */
export interface Listing {
  readonly from: number;
  readonly to: number;
  /** Rows at the end whose sort key is NULL: newest first shows them first, oldest first last. */
  readonly nullRows: number;
  /** What one edge takes in the service's own encoding, for its limit on answers. */
  readonly edgeBytes: number;
  /** @throws ServiceError (500) where the text is no cursor of this list */
  place(cursor: string): CursorPlace;
  /** `descending` and `cursored` are the shape of the query: where the order is open, it decides. */
  edges(positions: readonly number[], query: { descending: boolean; cursored: boolean }): Edge[];
}

export interface Edge {
  /** The node's JSON. */
  node: string;
  /** The cursor's JSON text, not yet base64. */
  cursor: string;
}

export interface Page {
  edges: readonly Edge[];
  hasNextPage: boolean;
  hasPreviousPage: boolean;
}

/** Checks the parameters; what does not belong together is mostly ignored, as the service does. */
export function pageRequest(given: PageParameters): PageRequest {
  const newestFirst = given.newestFirst ?? true;
  if (given.after !== undefined && given.before !== undefined) {
    throw invalidPagination('cannot set both a before and after cursor');
  }
  if (given.first !== undefined || (given.last === undefined && given.after !== undefined)) {
    const cursor = given.after === undefined ? undefined : decodeCursor('after', given.after);
    return { direction: 'forward', rowsMax: checkedRows(given.first), cursor, newestFirst };
  }
  if (given.last !== undefined || given.before !== undefined) {
    const cursor = given.before === undefined ? undefined : decodeCursor('before', given.before);
    return { direction: 'backward', rowsMax: checkedRows(given.last), cursor, newestFirst };
  }
  // Nothing at all gets a default page; only an order gets every row there is.
  if (given.newestFirst !== undefined) {
    return { direction: 'none', rowsMax: undefined, cursor: undefined, newestFirst };
  }
  return { direction: 'forward', rowsMax: PAGE_ROWS_DEFAULT, cursor: undefined, newestFirst };
}

function checkedRows(rows: number | undefined): number {
  if (rows !== undefined && rows <= 0) throw invalidPagination('pagination limit must be greater than 0');
  return rows ?? PAGE_ROWS_DEFAULT;
}

function invalidPagination(inner: string): ServiceError {
  return new ServiceError('InvalidArgument', { code: 10028, message: 'invalid pagination', inner });
}

/** Go's standard base64: padded, nothing else in between (line ends excepted). */
function decodeCursor(name: 'after' | 'before', value: string): string {
  const failed = `failed to decode ${name} cursor`;
  if (value === '') throw invalidPagination(`${failed}: cursor is empty`);
  const text = value.replaceAll(/[\r\n]/g, '');
  const bad = /[^A-Za-z0-9+/]/.exec(text.replace(/={1,2}$/, ''));
  if (bad !== null || text.length % 4 !== 0) {
    const at = bad?.index ?? text.length - (text.length % 4);
    throw invalidPagination(`${failed}: failed to decode cursor: illegal base64 data at input byte ${at}`);
  }
  return Buffer.from(text, 'base64').toString('utf8');
}

/**
 * One page of a list.
 * @param request what was asked; its cursor must be a cursor of this list
 * @param failed makes the error of a query that the database refuses
 */
export function pageOf(
  listing: Listing,
  request: PageRequest,
  failed: (inner: string) => ServiceError,
): Page {
  const { direction, rowsMax, newestFirst } = request;
  const descending = direction === 'backward' ? !newestFirst : newestFirst;
  const cursored = request.cursor !== undefined;
  const read = rowsMax === undefined ? Number.MAX_SAFE_INTEGER : rowsMax + (cursored ? 2 : 1);
  if (rowsMax !== undefined && read > INT32_MAX) throw failed('LIMIT must not be negative (SQLSTATE 2201W)');

  const place = request.cursor === undefined ? undefined : listing.place(request.cursor);
  const positions = queried(listing, place, descending, read);
  if (positions.length * listing.edgeBytes > ANSWER_BYTES_MAX) {
    throw tooLarge(positions.length * listing.edgeBytes);
  }
  const edges = listing.edges(positions, { descending, cursored });
  if (rowsMax === undefined) return { edges, hasNextPage: false, hasPreviousPage: false };

  const shown = trimmed(edges, rowsMax, request);
  return direction === 'backward' ? { ...shown, edges: shown.edges.toReversed() } : shown;
}

function tooLarge(bytes: number): ServiceError {
  return new ServiceError(
    'ResourceExhausted',
    undefined,
    `grpc: received message larger than max (${bytes} vs. ${ANSWER_BYTES_MAX})`,
  );
}

/** The positions the query returns, in the query's order. */
function queried(
  listing: Listing,
  place: CursorPlace | undefined,
  descending: boolean,
  limit: number,
): number[] {
  if (place?.kind === 'null') return [];
  let { from, to } = listing;
  if (place?.kind === 'between') {
    to -= listing.nullRows;
    if (descending) to = Math.min(to, place.ceil);
    else from = Math.max(from, place.floor);
  }
  const count = Math.max(0, Math.min(limit, to - from));
  return Array.from({ length: count }, (_, nth) => (descending ? to - 1 - nth : from + nth));
}

/** Drops the rows that were read beyond the page, judging by how many came. */
function trimmed(edges: readonly Edge[], rowsMax: number, request: PageRequest): Page {
  const backward = request.direction === 'backward';
  const cursored = request.cursor !== undefined;
  const further = (ahead: boolean, behind: boolean): Pick<Page, 'hasNextPage' | 'hasPreviousPage'> =>
    backward
      ? { hasNextPage: behind, hasPreviousPage: ahead }
      : { hasNextPage: ahead, hasPreviousPage: behind };

  // With a cursor the first row is taken for the cursor's own and dropped unseen: where that row is gone,
  // a real one is lost.
  if (edges.length === rowsMax + 2) return { edges: edges.slice(1, -1), ...further(true, true) };
  if (edges.length === rowsMax + 1) {
    if (cursored) return { edges: edges.slice(1), ...further(false, true) };
    return { edges: edges.slice(0, -1), ...further(true, false) };
  }
  if (cursored && edges[0]?.cursor === request.cursor)
    return { edges: edges.slice(1), ...further(false, true) };
  return { edges, ...further(false, false) };
}
