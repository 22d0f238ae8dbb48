/**
 * How the service computes a page, oddities included: one or two rows more than asked are read, and which
 * of them are dropped and what `hasNextPage` says is inferred from how many came.
 */
import { ServiceError } from './errors.ts';
import type { Query } from './query.ts';

/** The service's own page size where a request names none. */
const PAGE_ROWS_DEFAULT = 1000;
/** What crosses from the service to its HTTP side in one message. */
const ANSWER_BYTES_MAX = 20_971_520;
const INT32_MAX = 2_147_483_647;

/** The pagination parameters of a request, as they came. */
export interface PageParameters {
  readonly first?: number | undefined;
  readonly after?: string | undefined;
  readonly last?: number | undefined;
  readonly before?: string | undefined;
  readonly newestFirst?: boolean | undefined;
}

/**
 * Where a cursor stands among the positions of a list. `empty`: it has no value, so the query gets no predicate.
 * `null`: its value is NULL, with which no row compares. `floor`: the first position not before it; `ceil`:
 * the first behind it.
 */
type CursorPlace = 'empty' | 'null' | { readonly floor: number; readonly ceil: number };

/** A list by position, oldest first. Rows that no cursor can reach stand at the end. */
export interface Listing {
  readonly from: number;
  readonly to: number;
  /** Rows at the end whose sort key is NULL: newest first shows them first, oldest first last. */
  readonly nullRows: number;
  /** What one edge takes in the service's own encoding, for its limit on answers. */
  readonly edgeBytes: number;
  /** Makes the error of a query that the database refuses. */
  readonly failed: (inner: string) => ServiceError;
  /** @throws ServiceError (500) where the text is no cursor of this list */
  place(cursor: string): CursorPlace;
  /**
   * Those from one position to before another, oldest first. `isDescending` and `isCursored` are the shape of the
   * query: where the order is open, it decides.
   */
  edges(
    from: number,
    to: number,
    query: { isDescending: boolean; isCursored: boolean },
  ): readonly Edge[];
}

export interface Edge {
  readonly node: Readonly<Record<string, string>>;
  /** The cursor's JSON text, not yet base64. */
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
 * Checks the parameters; what does not belong together is mostly ignored, as the service does.
 * @returns cuts the page that was asked for out of a list
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
  // `first` wins over `last`; a cursor of the other direction is then not even looked at.
  const isBackward = first === undefined && (last !== undefined || before !== undefined);
  const [rows, text] = isBackward ? [last, before] : [first, after];
  const cursor =
    text === undefined ? undefined : decodeCursor(isBackward ? 'before' : 'after', text);
  // Nothing at all gets a default page; only an order gets every row there is.
  const isUnlimited =
    rows === undefined && text === undefined && newestFirst !== undefined;
  const rowsMax = isUnlimited ? Infinity : (rows ?? PAGE_ROWS_DEFAULT);
  if (rowsMax <= 0) throw invalidPagination('pagination limit must be greater than 0');
  const isDescending = isBackward !== (newestFirst ?? true);
  const isCursored = cursor !== undefined;

  /** The positions that the cursor leaves of a list. */
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
      const message = `grpc: received message larger than max (${answerBytes} vs. ${ANSWER_BYTES_MAX})`;
      throw new ServiceError('ResourceExhausted', undefined, message);
    }
    const start = isDescending ? to - count : from;
    const found = list.edges(start, start + count, { isDescending, isCursored });
    const edges = isDescending ? found.toReversed() : found;

    // Drops the rows that were read beyond the page, judging by how many came. With a cursor the first row is taken for
    // the cursor's own and dropped unseen: where that row is gone, a real one is lost.
    const isLongest = count === rowsMax + 2;
    const isAhead = isLongest || (count === rowsMax + 1 && !isCursored);
    const isBehind =
      isLongest || (isCursored && (count === rowsMax + 1 || edges[0]?.cursor === cursor));
    const shown = edges.slice(isBehind ? 1 : 0, isAhead ? -1 : undefined);
    return isBackward
      ? { edges: shown.toReversed(), hasNextPage: isBehind, hasPreviousPage: isAhead }
      : { edges: shown, hasNextPage: isAhead, hasPreviousPage: isBehind };
  };
}

function invalidPagination(inner: string): ServiceError {
  return new ServiceError('InvalidArgument', {
    code: 10028,
    message: 'invalid pagination',
    inner,
  });
}

/** Go's standard base64: padded, nothing else in between (line ends excepted). */
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
