/**
 * The source's paging rules, for a list in which every row has its own position: which
 * slice a request wants, and what the page says about adjacent pages.
 *
 * The mirror differs from the source only where that is safer. A page has at most
 * `PAGE_ROWS_MAX` rows, and a request for more gets a 400, as in the source's releases
 * since 0.73. A client that received fewer rows than it requested would assume that this
 * is the last page. A cursor that the mirror did not issue also gets a 400.
 */
import { z } from 'zod';
import type { QueryValues } from '../kit/query-text.ts';
import { DETAIL, StatusError } from '../kit/status-error.ts';
import type { Cursors } from './cursors.ts';

const PAGE_ROWS_DEFAULT = 1_000;
const PAGE_ROWS_MAX = 5_000;

/** The fields of a list's query, by their proto names. */
export const PAGE_FIELDS = {
  'pagination.first': 'int32',
  'pagination.after': 'string',
  'pagination.last': 'int32',
  'pagination.before': 'string',
  'pagination.newest_first': 'bool',
  'mirror.partial': 'bool',
} as const;

const ROWS = z
  .int32()
  .min(1)
  .max(PAGE_ROWS_MAX)
  .optional()
  .meta({ format: 'int32' });
const CURSOR = z.string().optional();

/** The same fields, as OpenAPI describes them. */
export const PAGING = z.object({
  'pagination.first': ROWS.describe(
    'Rows to return behind the cursor in `pagination.after`, 5000 at most. Default 1000.',
  ),
  'pagination.after': CURSOR.describe(
    'Paging forward: the cursor of the previous page’s last row.',
  ),
  'pagination.last': ROWS.describe(
    'Rows to return before the cursor in `pagination.before`, 5000 at most. ' +
      'Ignored if `pagination.first` is given.',
  ),
  'pagination.before': CURSOR.describe(
    'Paging backward: the cursor of the previous page’s first row.',
  ),
  'pagination.newestFirst': z
    .boolean()
    .default(true)
    .describe('Newest rows first.'),
  'mirror.partial': z
    .boolean()
    .optional()
    .describe(
      'Take what the mirror has of a list that it has not read to its end yet. ' +
        'Without it, such a list is a 503.',
    ),
});

export const PAGE_INFO = z.object({
  hasNextPage: z.boolean(),
  hasPreviousPage: z.boolean(),
  startCursor: z.string(),
  endCursor: z.string(),
});

/** The slice of a list that a request wants. */
export interface PageRequest {
  /** Whether the request pages forward, in the client's reading direction. */
  readonly isForward: boolean;
  /** Whether the slice is read towards higher positions (newer rows). */
  readonly ascending: boolean;
  readonly rowsMax: number;
  /**
   * The fields of the cursor without its epoch; undefined if the slice starts at an end
   * of the list.
   */
  readonly beyond: readonly string[] | undefined;
}

/** The direction in which a request pages, with its page size and cursor. */
interface Direction {
  readonly isForward: boolean;
  readonly size: number | undefined;
  readonly cursor: string | undefined;
}

/**
 * Returns the slice that a query requests.
 * @param epoch the epoch of the served list; it is the first field of every cursor, and
 *   cursors of other epochs are refused
 * @throws StatusError 400 `invalid pagination`
 */
export function readPageRequest(
  query: QueryValues<typeof PAGE_FIELDS>,
  epoch: number,
  cursors: Cursors,
): PageRequest {
  if (
    query['pagination.after'] !== undefined &&
    query['pagination.before'] !== undefined
  )
    throw invalid('cannot set both a before and after cursor');
  const direction = readDirection(query);
  const { isForward, size: rowsMax = PAGE_ROWS_DEFAULT } = direction;
  const cursor = readCursor(direction, cursors);
  if (rowsMax <= 0) throw invalid('pagination limit must be greater than 0');
  if (rowsMax > PAGE_ROWS_MAX)
    throw invalid(`pagination limit must be in range 0-${PAGE_ROWS_MAX}`);
  if (cursor !== undefined && cursor[0] !== `${epoch}`)
    throw invalid(
      'the cursor is of an earlier life of the chain; start again without a cursor',
    );

  const isNewestFirst = query['pagination.newest_first'] ?? true;
  return {
    isForward,
    ascending: isNewestFirst !== isForward,
    rowsMax,
    beyond: cursor?.slice(1),
  };
}

/**
 * Determines the direction. `first` takes precedence over `last`, and a cursor for the
 * other direction is then ignored. With neither, a `before` without `after` pages
 * backward, and anything else pages forward.
 */
function readDirection(query: QueryValues<typeof PAGE_FIELDS>): Direction {
  const { 'pagination.first': first, 'pagination.last': last } = query;
  const { 'pagination.after': after, 'pagination.before': before } = query;
  const isForward =
    first !== undefined || (last === undefined && before === undefined);
  return isForward
    ? { isForward, size: first, cursor: after }
    : { isForward, size: last, cursor: before };
}

function readCursor(
  { isForward, cursor: text }: Direction,
  cursors: Cursors,
): readonly string[] | undefined {
  if (text === undefined) return undefined;
  const cursor = cursors.read(text);
  if (cursor !== undefined) return cursor;
  const reason =
    text === ''
      ? 'cursor is empty'
      : 'not a cursor of this list of this mirror';
  throw invalid(
    `failed to decode ${isForward ? 'after' : 'before'} cursor: ${reason}`,
  );
}

function invalid(inner: string): StatusError {
  return StatusError.ofHandler('invalidArgument', {
    ...DETAIL.invalidPagination,
    inner,
  });
}

/** One row of a page. */
export interface Edge {
  /** The row as JSON. */
  readonly node: string;
  readonly cursor: string;
}

/** A page, before it is written. */
export interface Page {
  readonly edges: readonly Edge[];
  readonly pageInfo: z.infer<typeof PAGE_INFO>;
}

/**
 * Builds a page. Like the source, it does not check whether there are rows on the
 * cursor's side, because the cursor's own row is always there.
 * @param rows the rows of the slice, at most `rowsMax + 1`, in the order in which they
 *   were read
 */
export function toPage(
  { isForward, rowsMax, beyond }: Omit<PageRequest, 'ascending'>,
  rows: readonly Edge[],
): Page {
  const hasMore = rows.length > rowsMax;
  const hasCursor = beyond !== undefined;
  const inOrder = rows.slice(0, rowsMax);
  const edges = isForward ? inOrder : inOrder.toReversed();
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

/**
 * Writes a page in its response format. Every page has the same few keys, so they are
 * written here: `JSON.stringify` of a thousand edges takes several times as long.
 * @param indent the number of spaces of an indented response; absent for a compact one
 */
export function writePage(
  name: string,
  { edges, pageInfo }: Page,
  indent?: number,
): string {
  // No character of a cursor needs an escape in JSON.
  const rows = edges.map(
    ({ node, cursor }) => `{"node":${node},"cursor":"${cursor}"}`,
  );
  const json = `{"${name}":{"edges":[${rows.join(',')}],"pageInfo":${JSON.stringify(pageInfo)}}}`;
  return indent === undefined
    ? json
    : JSON.stringify(JSON.parse(json), undefined, indent);
}
