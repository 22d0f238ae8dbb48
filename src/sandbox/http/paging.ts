/**
 * Computes a page as the service does, including its quirks. The service reads one or two
 * rows more than requested. From the number of rows found, it infers which of them to
 * drop and the value of `hasNextPage`.
 */
import { ServiceError } from './errors.ts';
import type { Query } from './query.ts';

/** The service's page size for a request that does not specify a size. */
const PAGE_ROWS_DEFAULT = 1000;
/** Maximum size in bytes of a message from the service to its HTTP gateway. */
const ANSWER_BYTES_MAX = 20_971_520;
const INT32_MAX = 2_147_483_647;

/** The pagination parameters of a request, as they were sent. */
export interface PageParameters {
  readonly first?: number | undefined;
  readonly after?: string | undefined;
  readonly last?: number | undefined;
  readonly before?: string | undefined;
  readonly newestFirst?: boolean | undefined;
}

/**
 * Where a cursor falls among the positions of a list. `empty`: the cursor has no value,
 * so the query has no predicate. `null`: its value is NULL, which matches no row in a
 * comparison. `floor` is the first position that is not before the cursor, and `ceil` is
 * the first position after it.
 */
type CursorPlace =
  | 'empty'
  | 'null'
  | { readonly floor: number; readonly ceil: number };

/** A list by position, oldest first. Rows that no cursor can reach are at the end. */
export interface Listing {
  readonly from: number;
  readonly to: number;
  /**
   * How many rows at the end have NULL as their sort key. They are first in newest-first
   * order and last in oldest-first order.
   */
  readonly nullRows: number;
  /** The size of one edge in the service's own encoding, for its response size limit. */
  readonly edgeBytes: number;
  /** Returns the error for a query that the database rejects. */
  readonly failed: (inner: string) => ServiceError;
  /**
   * Finds a cursor's position.
   * @throws ServiceError (500) if the string is not a cursor of this list
   */
  place(cursor: string): CursorPlace;
  /**
   * Returns the edges from position `from` (inclusive) to `to` (exclusive), oldest first.
   * `isDescending` and `isCursored` describe the shape of the query, which determines the
   * order of rows that have no defined order.
   */
  edges(
    from: number,
    to: number,
    query: { isDescending: boolean; isCursored: boolean },
  ): readonly Edge[];
}

export interface Edge {
  readonly node: Readonly<Record<string, string>>;
  /** The cursor as a JSON string, before base64 encoding. */
  readonly cursor: string;
}

export interface Page {
  readonly edges: readonly Edge[];
  readonly hasNextPage: boolean;
  readonly hasPreviousPage: boolean;
}

export function readPageParameters(query: Query): PageParameters {
  return {
    first: query.int32('pagination.first'),
    after: query.text('pagination.after'),
    last: query.int32('pagination.last'),
    before: query.text('pagination.before'),
    newestFirst: query.boolean('pagination.newest_first'),
  };
}

/**
 * Checks the parameters. Like the service, it mostly ignores contradictions between
 * parameters.
 * @returns a function that cuts the requested page out of a list
 */
export function openPage({
  first,
  after,
  last,
  before,
  newestFirst,
}: PageParameters): (list: Listing) => Page {
  if (after !== undefined && before !== undefined) {
    throw invalidPagination('cannot set both a before and after cursor');
  }
  // `first` takes precedence over `last`. If `first` is set, the service does not even
  // read a cursor for the other direction.
  const isBackward =
    first === undefined && (last !== undefined || before !== undefined);
  const rows = isBackward ? last : first;
  const text = isBackward ? before : after;
  const cursor =
    text === undefined
      ? undefined
      : decodeCursor(isBackward ? 'before' : 'after', text);
  // A request without any parameter gets a default page. A request with only an order
  // gets every row.
  const isUnlimited =
    rows === undefined && text === undefined && newestFirst !== undefined;
  const rowsMax = isUnlimited ? Infinity : (rows ?? PAGE_ROWS_DEFAULT);
  if (rowsMax <= 0)
    throw invalidPagination('pagination limit must be greater than 0');
  const isDescending = isBackward !== (newestFirst ?? true);
  const isCursored = cursor !== undefined;

  /** Returns the positions of a list that the cursor does not exclude. */
  function findRange(list: Listing) {
    const { from, to, nullRows } = list;
    const at = cursor === undefined ? 'empty' : list.place(cursor);
    if (at === 'empty') return { from, to };
    if (at === 'null') return { from, to: from };
    return isDescending
      ? { from, to: Math.min(to - nullRows, at.ceil) }
      : { from: Math.max(from, at.floor), to: to - nullRows };
  }

  return (list) => {
    const limit = rowsMax + (isCursored ? 2 : 1);
    if (!isUnlimited && limit > INT32_MAX)
      throw list.failed('LIMIT must not be negative (SQLSTATE 2201W)');
    const { from, to } = findRange(list);
    const count = Math.max(0, Math.min(limit, to - from));
    const answerBytes = count * list.edgeBytes;
    if (answerBytes > ANSWER_BYTES_MAX) {
      const message =
        `grpc: received message larger than max (${answerBytes} vs. ` +
        `${ANSWER_BYTES_MAX})`;
      throw new ServiceError('ResourceExhausted', undefined, message);
    }
    const start = isDescending ? to - count : from;
    const found = list.edges(start, start + count, {
      isDescending,
      isCursored,
    });
    const edges = isDescending ? found.toReversed() : found;

    // The service decides from the number of rows alone which rows are beyond the page,
    // and drops them. If there is a cursor, it assumes that the first row is the cursor's
    // own, and drops that row too. If the cursor's row is no longer in the list, a real
    // row is lost.
    const isLongest = count === rowsMax + 2;
    const hasNext = isLongest || (count === rowsMax + 1 && !isCursored);
    const hasPrevious =
      isLongest ||
      (isCursored && (count === rowsMax + 1 || edges[0]?.cursor === cursor));
    const shown = edges.slice(hasPrevious ? 1 : 0, hasNext ? -1 : undefined);
    return isBackward
      ? {
          edges: shown.toReversed(),
          hasNextPage: hasPrevious,
          hasPreviousPage: hasNext,
        }
      : { edges: shown, hasNextPage: hasNext, hasPreviousPage: hasPrevious };
  };
}

function invalidPagination(inner: string): ServiceError {
  return new ServiceError('InvalidArgument', {
    code: 10028,
    message: 'invalid pagination',
    inner,
  });
}

/**
 * Decodes base64 as Go's standard encoding does: padding is required, and no other
 * characters are allowed except line breaks.
 */
function decodeCursor(name: 'after' | 'before', value: string): string {
  const failed = `failed to decode ${name} cursor`;
  if (value === '') throw invalidPagination(`${failed}: cursor is empty`);
  const text = value.replaceAll(/[\r\n]/g, '');
  const bad = /[^A-Za-z0-9+/]/.exec(text.replace(/={1,2}$/, ''));
  if (bad !== null || text.length % 4 !== 0) {
    const at = bad?.index ?? text.length - (text.length % 4);
    throw invalidPagination(
      `${failed}: failed to decode cursor: illegal base64 data at input byte ${at}`,
    );
  }
  return Buffer.from(text, 'base64').toString('utf8');
}
