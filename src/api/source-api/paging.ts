/**
 * The page rules of the mirrored service, for a list whose every row has a position of its own: which
 * slice a request asks for, and what its page says of its neighbours.
 *
 * Differences from the service, all on the safe side: a page holds at most `PAGE_ROWS_MAX` rows, also
 * where the service would send everything or fail; and a cursor that the mirror has not made is a 400.
 */
import { hash, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { Given } from '../kit/query-text.ts';
import { DETAIL, StatusError } from '../kit/status-error.ts';

const PAGE_ROWS_DEFAULT = 1_000;
/** As in the service's later releases; the contract's limit. */
const PAGE_ROWS_MAX = 5_000;

export const PAGE_FIELDS = {
  'pagination.first': 'int32',
  'pagination.after': 'string',
  'pagination.last': 'int32',
  'pagination.before': 'string',
  'pagination.newest_first': 'bool',
} as const;

const ROWS = z.int32().min(1).optional().meta({ format: 'int32' });
const CURSOR = z.string().optional();
/** The same as OpenAPI tells of it. */
export const PAGING = z.object({
  'pagination.first': ROWS.describe(
    'Rows to return behind the cursor in `pagination.after`; more than 5000 are never sent. Default 1000.',
  ),
  'pagination.after': CURSOR.describe(
    'Paging forward: the cursor of the previous page’s last row.',
  ),
  'pagination.last': ROWS.describe(
    'Rows to return before the cursor in `pagination.before`. Ignored where `pagination.first` is given.',
  ),
  'pagination.before': CURSOR.describe(
    'Paging backward: the cursor of the previous page’s first row.',
  ),
  'pagination.newestFirst': z.boolean().default(true).describe('Newest rows first.'),
});

export const PAGE_INFO = z.object({
  hasNextPage: z.boolean(),
  hasPreviousPage: z.boolean(),
  startCursor: z.string(),
  endCursor: z.string(),
});

export interface PageRequest {
  /** Further down the list as the client reads it. */
  readonly isForward: boolean;
  /** Towards higher positions (newer rows). */
  readonly ascending: boolean;
  readonly rowsMax: number;
  /** What the cursor says behind its epoch. */
  readonly beyond: readonly string[] | undefined;
}

/**
 * @param epoch the life of the source's chain that is served, the first field of every cursor; others are refused
 * @throws StatusError 400 `invalid pagination`
 */
export function readPageRequest(
  given: Given<typeof PAGE_FIELDS>,
  epoch: number,
  cursors: Cursors,
): PageRequest {
  const { 'pagination.first': first, 'pagination.last': last } = given;
  const { 'pagination.after': after, 'pagination.before': before } = given;
  const { 'pagination.newest_first': newestFirst } = given;
  if (after !== undefined && before !== undefined)
    throw invalid('cannot set both a before and after cursor');
  // `first` wins over `last`; a cursor of the other direction is then not even looked at. Neither
  // given: a lone `before` pages backward, and a request that only names the order forward.
  const isForward = first !== undefined || (last === undefined && before === undefined);
  const [size, text] = isForward ? [first, after] : [last, before];
  const isUnlimited =
    size === undefined && text === undefined && newestFirst !== undefined;
  const rowsMax = isUnlimited
    ? PAGE_ROWS_MAX
    : Math.min(size ?? PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX);
  const cursor = text === undefined ? undefined : cursors.read(text);
  if (text !== undefined && cursor === undefined) {
    const reason =
      text === '' ? 'cursor is empty' : 'not a cursor of this list of this mirror';
    throw invalid(`failed to decode ${isForward ? 'after' : 'before'} cursor: ${reason}`);
  }
  if (rowsMax <= 0) throw invalid('pagination limit must be greater than 0');
  if (cursor !== undefined && cursor[0] !== `${epoch}`)
    throw invalid(
      'the cursor is of an earlier life of the chain; start again without a cursor',
    );
  return {
    isForward,
    ascending: (newestFirst ?? true) !== isForward,
    rowsMax,
    beyond: cursor?.slice(1),
  };
}

function invalid(inner: string): StatusError {
  return StatusError.ofHandler('invalidArgument', { ...DETAIL.invalidPagination, inner });
}

/** A page as it is sent. */
export interface Page {
  readonly edges: readonly { readonly node: object; readonly cursor: string }[];
  readonly pageInfo: z.infer<typeof PAGE_INFO>;
}

/**
 * What lies behind a cursor is inferred from the cursor, not asked, as the service does: with a cursor
 * there is always something on its side.
 * @param found rows of the slice, up to `rowsMax + 1`
 */
export function toPage<Row>(
  { isForward, rowsMax, beyond }: Omit<PageRequest, 'ascending'>,
  found: readonly Row[],
  edgeOf: (row: Row) => Page['edges'][number],
): Page {
  const hasMore = found.length > rowsMax;
  const hasCursor = beyond !== undefined;
  const shown = found.slice(0, rowsMax).map((row) => edgeOf(row));
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

const CHARACTERS_MAX = 8_192;
/** 132 bits: what is cut off a hash cannot be continued from. */
const SIGNATURE_CHARACTERS = 22;

/**
 * Cursors: a position in a list, as signed text. They carry what the next page starts from, so that a page costs the same
 * at any depth and no process keeps anything; what this mirror has not made for the list is refused.
 */
export class Cursors {
  readonly #key: string;

  /** @param secret known to no client; who has it can forge positions, nothing else */
  constructor(secret: Buffer, list: string) {
    this.#key = hash('sha256', `${secret.toString('hex')} cursors of ${list}`);
  }

  /** @returns needs no escape in a URL or in JSON */
  write(...fields: readonly string[]): string {
    const body = Buffer.from(JSON.stringify(fields)).toString('base64url');
    return `${body}.${this.#sign(body)}`;
  }

  /** @returns the fields; undefined where this mirror has not made `text` for this list */
  read(text: string): readonly string[] | undefined {
    if (text.length > CHARACTERS_MAX) return undefined;
    const [body = '', signature = '', more] = text.split('.');
    const given = Buffer.from(signature);
    const expected = Buffer.from(this.#sign(body));
    const isOurs =
      more === undefined &&
      given.length === expected.length &&
      timingSafeEqual(given, expected);
    return isOurs
      ? (JSON.parse(Buffer.from(body, 'base64url').toString()) as string[])
      : undefined;
  }

  #sign(body: string): string {
    return hash('sha256', `${this.#key} ${body}`, 'base64url').slice(
      0,
      SIGNATURE_CHARACTERS,
    );
  }
}
