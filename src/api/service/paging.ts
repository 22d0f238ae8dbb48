/**
 * The page rules of the mirrored service, for a list whose every row has a position of its own: which
 * slice a request asks for, and what its page says of its neighbours.
 *
 * Differences from the service, all on the safe side: a page holds at most `PAGE_ROWS_MAX` rows, also
 * where the service would send everything or fail; and a cursor that the mirror has not made is a 400.
 */
import type { Given } from '../http/query-text.ts';
import { DETAIL, StatusError } from '../http/status-error.ts';

const PAGE_ROWS_DEFAULT = 1_000;
/** As in the service's later releases; the contract's limit. */
export const PAGE_ROWS_MAX = 5_000;

export const PAGE_FIELDS = {
  'pagination.first': 'int32',
  'pagination.after': 'string',
  'pagination.last': 'int32',
  'pagination.before': 'string',
  'pagination.newest_first': 'bool',
} as const;

/** Every cursor says which life of the source's chain it is of. */
interface Dated {
  readonly epoch: number;
}

export interface PageRequest<Position> {
  /** `forward` is further down the list as the client reads it. */
  readonly direction: 'forward' | 'backward';
  readonly newestFirst: boolean;
  readonly rowsMax: number;
  readonly cursor: Position | undefined;
}

/**
 * @param epoch the life of the chain that is served; cursors of another are refused
 * @param readCursor gives undefined for what is no cursor of this list
 * @throws StatusError 400 `invalid pagination`
 */
export function readPageRequest<Position extends Dated>(
  given: Given<typeof PAGE_FIELDS>,
  epoch: number,
  readCursor: (text: string) => Position | undefined,
): PageRequest<Position> {
  const first = given['pagination.first'];
  const after = given['pagination.after'];
  const last = given['pagination.last'];
  const before = given['pagination.before'];
  if (after !== undefined && before !== undefined) {
    throw invalid('cannot set both a before and after cursor');
  }
  // `first` wins over `last`; a cursor of the other direction is then not even looked at. Neither
  // given: a lone `before` pages backward, and a request that only names the order forward.
  const isForward = first !== undefined || (last === undefined && before === undefined);
  const size = isForward ? first : last;
  const cursorText = isForward ? after : before;
  const isUnlimited =
    size === undefined && cursorText === undefined && given['pagination.newest_first'] !== undefined;
  const rowsMax = isUnlimited ? PAGE_ROWS_MAX : Math.min(size ?? PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX);
  const cursor = decode(isForward ? 'after' : 'before', cursorText, readCursor);
  if (rowsMax <= 0) throw invalid('pagination limit must be greater than 0');
  if (cursor !== undefined && cursor.epoch !== epoch) {
    throw invalid('the cursor is of an earlier life of the chain; start again without a cursor');
  }
  return {
    direction: isForward ? 'forward' : 'backward',
    newestFirst: given['pagination.newest_first'] ?? true,
    rowsMax,
    cursor,
  };
}

function decode<Position>(
  side: 'after' | 'before',
  text: string | undefined,
  readCursor: (text: string) => Position | undefined,
): Position | undefined {
  if (text === undefined) return undefined;
  if (text === '') throw invalid(`failed to decode ${side} cursor: cursor is empty`);
  const position = readCursor(text);
  if (position === undefined) {
    throw invalid(`failed to decode ${side} cursor: not a cursor of this list of this mirror`);
  }
  return position;
}

function invalid(inner: string): StatusError {
  return StatusError.ofHandler('invalidArgument', { ...DETAIL.invalidPagination, inner });
}

/** Does the slice go towards higher positions? */
export function isAscending(request: Pick<PageRequest<unknown>, 'direction' | 'newestFirst'>): boolean {
  return request.newestFirst === (request.direction === 'backward');
}

/** A page as it is sent. */
export interface Page {
  readonly edges: readonly { readonly node: object; readonly cursor: string }[];
  readonly pageInfo: {
    readonly hasNextPage: boolean;
    readonly hasPreviousPage: boolean;
    readonly startCursor: string;
    readonly endCursor: string;
  };
}

/**
 * What lies behind a cursor is inferred from the cursor, not asked, as the service does: with a cursor
 * there is always something on its side.
 * @param found rows of the slice, up to `rowsMax + 1`
 */
export function toPage<Row>(
  request: PageRequest<unknown>,
  found: readonly Row[],
  edgeOf: (row: Row) => Page['edges'][number],
): Page {
  const isForward = request.direction === 'forward';
  const hasMore = found.length > request.rowsMax;
  const hasCursor = request.cursor !== undefined;
  const shown = found.slice(0, request.rowsMax).map((row) => edgeOf(row));
  const edges = isForward ? shown : shown.toReversed();
  return {
    edges,
    pageInfo: {
      hasNextPage: isForward ? hasMore : hasCursor,
      hasPreviousPage: isForward ? hasCursor : hasMore,
      startCursor: edges[0]?.cursor ?? '',
      endCursor: edges.at(-1)?.cursor ?? '',
    },
  };
}
