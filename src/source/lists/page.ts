/**
 * Parses a page of a list. Every JSON value is checked, ids are converted to canonical
 * form, and numbers stay exact.
 */
import { PermanentError, RetryableError } from '../../errors/errors.ts';
import { toStorableJson } from '../../json/json-value.ts';
import {
  canonicalPartyId,
  checkpointKey,
  oddKey,
  PARTY_ID_BYTES_MAX,
} from '../../ledger/ids.ts';
import { hideSecrets } from '../../secrets/secret-masking.ts';
import {
  isRecord,
  sampleOf,
  tellsError,
} from '../../ledger/answer/error-body.ts';
import type { ListedRow, ListName, Page } from '../../lists/ports.ts';

const UINT64_MAX = 2n ** 64n - 1n;
const CURSOR_CHARS_MAX = 16_384;
const SHOWN_CHARS_MAX = 120;
const DECIMAL = /^(?:0|[1-9]\d{0,19})$/;
/**
 * Maximum size of a hash in bytes. The interface does not specify the format of hashes,
 * so any printable string is kept unchanged.
 */
const HASH_BYTES_MAX = 1024;
const PRINTABLE = /^[^\p{Cc}\p{Cs}\p{Cf}\p{Zl}\p{Zp}]*$/u;
/**
 * Maximum nesting depth of a page's JSON. Edges, nodes and their fields need four
 * levels; the rest is for fields that do not exist yet.
 */
const DEPTH_MAX = 32;
const VALUES_PER_ROW_MAX = 64;
const VALUES_BESIDE_ROWS_MAX = 1_000;
/** Maximum number of characters to keep if a row cannot be parsed. */
const ODD_ROW_CHARS_MAX = 2_000;
/**
 * A number of this length may have more digits than a JavaScript number can represent.
 */
const LONG_NUMBER_CHARS = 16;
const LONG_NUMBER = /(?:^|[\s:,[-])\d[\d.eE+-]{15,}/;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/** Rejects invalid UTF-8, and skips a byte order mark. */
const UTF8 = new TextDecoder('utf-8', { fatal: true });

export type PageRows = Omit<
  Page,
  'blockHeight' | 'blockTime' | 'answeredAt' | 'isProven'
>;

/**
 * Parses a page. A row that cannot be parsed is returned with the reason in `odd`, so
 * that the other rows can still be read.
 * @param rowsMax how many rows were requested. A page with more is rejected, and one
 *   with far more is rejected even before it is parsed
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` if the response is not JSON (because
 *   it is cut off or an error page), or reports an error
 * @throws PermanentError `PAGE_SHAPE` with the offending value and its path
 */
export function parsePage(
  list: ListName,
  body: Buffer,
  rowsMax: number,
): PageRows {
  const valuesMax = rowsMax * VALUES_PER_ROW_MAX + VALUES_BESIDE_ROWS_MAX;
  const excess = findExcess(body, { depthMax: DEPTH_MAX, valuesMax });
  if (excess !== undefined) {
    throw new PermanentError(
      `Cannot read a page of ${list}: it contains ${excess}; check whether ` +
        'SOURCE_URL is the query service',
      {
        code: 'PAGE_SHAPE',
        meta: { list, path: 'the answer', value: excess, bytes: body.length },
      },
    );
  }
  const answer = objectAt(list, parseExact(list, body), '');
  if (tellsError(answer)) throw notUnderstood(list, body, 'reports an error');
  // A field without content may be missing or null.
  const page = objectAt(list, answer[list] === null ? {} : answer[list], list);
  if (tellsError(page)) throw notUnderstood(list, body, 'reports an error');
  const info = objectAt(list, page['pageInfo'] ?? {}, `${list}.pageInfo`);
  const edges: unknown = page['edges'] ?? [];
  if (!Array.isArray(edges))
    throw shape(list, `${list}.edges`, edges, 'an array');
  if (edges.length > rowsMax) {
    throw shape(
      list,
      `${list}.edges.length`,
      edges.length,
      `at most ${rowsMax}, as asked,`,
    );
  }
  const rows = edges.map((edge: unknown, index) => {
    const error: RowError = (path, value, accepted) =>
      shape(list, `${list}.edges[${index}]${path}`, value, accepted);
    if (!isRecord(edge)) throw error('', edge, 'an object');
    const { node, cursor } = edge;
    if (!isRecord(node)) throw error('.node', node, 'an object');
    if (
      typeof cursor !== 'string' ||
      cursor === '' ||
      cursor.length > CURSOR_CHARS_MAX
    ) {
      throw error(
        '.cursor',
        cursor,
        `a string of 1 to ${CURSOR_CHARS_MAX} characters`,
      );
    }
    return readNode(list, { node, cursor }, error);
  });
  const flag = (name: string): boolean => {
    const value = info[name] ?? false;
    if (typeof value !== 'boolean')
      throw shape(list, `${list}.pageInfo.${name}`, value, 'true or false');
    return value;
  };
  const cursor = (name: string): string | undefined => {
    const value = info[name] ?? undefined;
    if (value === undefined || typeof value === 'string') return value;
    throw shape(list, `${list}.pageInfo.${name}`, value, 'a string');
  };
  return {
    rows,
    hasNextPage: flag('hasNextPage'),
    startCursor: cursor('startCursor'),
    endCursor: cursor('endCursor'),
  };
}

/** An edge of a page. The fields of its node are not checked yet. */
interface Edge {
  readonly node: Record<string, unknown>;
  readonly cursor: string;
}

function readNode(
  list: ListName,
  { node, cursor }: Edge,
  error: RowError,
): ListedRow {
  try {
    return list === 'parties'
      ? partyRow(node, cursor, error)
      : checkpointRow(node, cursor, error);
  } catch (fault) {
    if (!(fault instanceof PermanentError)) throw fault;
    const json = JSON.stringify(node);
    return {
      cursor,
      key: oddKey(json),
      extra: undefined,
      odd: {
        because: fault.message,
        row: hideSecrets(json).slice(0, ODD_ROW_CHARS_MAX),
      },
    };
  }
}

/** Creates the error for a value in a row. */
type RowError = (
  path: string,
  value: unknown,
  accepted: string,
) => PermanentError;

function partyRow(
  node: Record<string, unknown>,
  cursor: string,
  error: RowError,
): ListedRow {
  const { id: given, ...extra } = node;
  const id = typeof given === 'string' ? canonicalPartyId(given) : undefined;
  if (id === undefined)
    throw error(
      '.node.id',
      given,
      `a printable string of 1 to ${PARTY_ID_BYTES_MAX} bytes`,
    );
  // Keep the source's spelling, because the source may compare ids exactly when one is
  // looked up.
  return {
    cursor,
    key: id,
    extra: extraOf(given === id ? extra : { ...extra, id: given }),
  };
}

function checkpointRow(
  node: Record<string, unknown>,
  cursor: string,
  error: RowError,
): ListedRow {
  const {
    atBlock: givenBlock,
    hash: givenHash,
    blockHash: givenBlockHash,
    ...extra
  } = node;
  // proto3 omits zero values from JSON.
  const atBlock = uint64(givenBlock === undefined ? '0' : givenBlock);
  if (atBlock === undefined)
    throw error('.node.atBlock', givenBlock, 'a whole number below 2^64');
  const hash = hashText(givenHash, '.node.hash', error);
  const blockHash = hashText(givenBlockHash, '.node.blockHash', error);
  return {
    cursor,
    key: checkpointKey(atBlock, hash, blockHash),
    extra: extraOf(extra),
  };
}

/**
 * Returns a decimal string. A JSON number that would lose digits is already a string
 * (see `parseExact`).
 */
function uint64(given: unknown): string | undefined {
  const text =
    typeof given === 'number' && Number.isSafeInteger(given)
      ? String(given)
      : given;
  if (typeof text !== 'string' || !DECIMAL.test(text)) return undefined;
  return text.length < 20 || BigInt(text) <= UINT64_MAX ? text : undefined;
}

function hashText(given: unknown, path: string, error: RowError): string {
  const isBounded =
    typeof given === 'string' && Buffer.byteLength(given) <= HASH_BYTES_MAX;
  if (isBounded && PRINTABLE.test(given)) return given;
  throw error(
    path,
    given,
    `a printable string of up to ${HASH_BYTES_MAX} bytes`,
  );
}

function extraOf(extra: Record<string, unknown>): ListedRow['extra'] {
  return Object.keys(extra).length === 0 ? undefined : toStorableJson(extra);
}

/**
 * Parses JSON, but keeps a number that would lose digits as the string in which it was
 * written.
 */
function parseExact(list: ListName, body: Buffer): unknown {
  try {
    const text = UTF8.decode(body);
    return LONG_NUMBER.test(text)
      ? JSON.parse(text, exactNumber)
      : JSON.parse(text);
  } catch (error) {
    throw notUnderstood(list, body, 'is no JSON', error);
  }
}

function exactNumber(
  _key: string,
  value: unknown,
  context: { source?: string } = {},
): unknown {
  const { source } = context;
  if (
    typeof value !== 'number' ||
    source === undefined ||
    source.length < LONG_NUMBER_CHARS
  )
    return value;
  const isExact =
    String(value) === source &&
    (Number.isSafeInteger(value) || !Number.isInteger(value));
  return isExact ? value : source;
}

function objectAt(
  list: ListName,
  value: unknown,
  path: string,
): Record<string, unknown> {
  if (!isRecord(value))
    throw shape(list, path === '' ? 'the answer' : path, value, 'an object');
  return value;
}

function shape(
  list: ListName,
  path: string,
  value: unknown,
  accepted: string,
): PermanentError {
  const shown =
    value === undefined
      ? 'missing'
      : hideSecrets(JSON.stringify(value) ?? typeof value).slice(
          0,
          SHOWN_CHARS_MAX,
        );
  return new PermanentError(
    `Cannot read a page of ${list}: ${path} is ${shown}, where ${accepted} is ` +
      'expected; check whether SOURCE_URL is the query service',
    { code: 'PAGE_SHAPE', meta: { list, path, value: shown } },
  );
}

function notUnderstood(
  list: ListName,
  body: Buffer,
  state: string,
  cause?: unknown,
): RetryableError {
  const sample = sampleOf(body);
  return new RetryableError(
    `Cannot read a page of ${list}: the answer ${state} (${body.length} bytes, ` +
      `beginning ${JSON.stringify(sample)})`,
    {
      code: 'ANSWER_NOT_UNDERSTOOD',
      meta: { list, bytes: body.length, sample },
      cause,
    },
  );
}

/**
 * Checks the bytes of untrusted JSON against limits before `JSON.parse` sees them: a
 * few kilobytes on the wire can decompress into brackets that take gigabytes as objects
 * and crash the process. Reads each byte once and stores nothing. Malformed JSON is
 * left to the parser.
 * @returns the limit that is exceeded, in words for a message; undefined if the JSON
 *   may be parsed
 */
export function findExcess(
  json: Uint8Array,
  { depthMax, valuesMax }: Readonly<Record<'depthMax' | 'valuesMax', number>>,
): string | undefined {
  let depth = 0;
  let values = 0;
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at];
    if (byte === QUOTE) at = endOfString(json, at);
    else if (byte === COMMA) values += 1;
    else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) depth -= 1;
    else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) {
      depth += 1;
      values += 1;
      if (depth > depthMax)
        return `objects or arrays nested more than ${depthMax} deep`;
    }
    if (values > valuesMax) return `more than ${valuesMax} values`;
  }
  return undefined;
}

/**
 * Finds the end of a string.
 * @returns the position of the closing quote, or the end if there is none
 */
function endOfString(json: Uint8Array, start: number): number {
  let at = start + 1;
  while (at < json.length && json[at] !== QUOTE)
    at += json[at] === BACKSLASH ? 2 : 1;
  return at;
}
