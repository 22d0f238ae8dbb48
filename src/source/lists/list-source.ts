/**
 * Reads the two lists over HTTP. Every request specifies its page size. A response
 * without the expected structure is an error, and nothing in it is guessed.
 */
import {
  errorCode,
  PermanentError,
  RetryableError,
} from '../../errors/errors.ts';
import { canonicalPartyId } from '../../ledger/ids.ts';
import type {
  ListName,
  ListSource,
  Page,
  PageRequest,
} from '../../lists/ports.ts';
import { readSourceClock } from '../wire/answer-headers.ts';
import { readWhole } from '../wire/body.ts';
import {
  LIST_RETRIES,
  ONE_ATTEMPT,
  type OpenAnswer,
  type SourceAccess,
  type SourceRequest,
} from '../requester.ts';
import { answerError, errorBodyOf } from '../failure.ts';
import { LIST_LIMITS, whereOf } from '../wire/http.ts';
import { parsePage } from './page.ts';

/**
 * Maximum size of a page in bytes. The service itself stops at 20 MiB, measured before
 * it serializes the response as JSON.
 */
export const PAGE_BYTES_MAX = 32 * 2 ** 20;
/**
 * Maximum number of rows in a look-up. A source that does not support the filter sends
 * a page of its default size.
 */
const LOOK_UP_ROWS_MAX = 5_000;
/** A page size that no release refuses. */
const PROBE_ROWS = 1;
const GRPC_NOT_FOUND = 5;
const SHOWN_MAX = 80;
/**
 * How long a small request may take, in milliseconds. It must exceed the timeout for
 * the first header, to distinguish a source that sends nothing from one that sends too
 * slowly.
 */
const SMALL_CALL_MS = 45_000;
const SMALL_ATTEMPTS_MAX = 2;

/**
 * Failures that a bad cursor or page size may cause. For example, the public service
 * responds with 500 to a forged cursor.
 */
const AMBIGUOUS: ReadonlySet<string> = new Set([
  'SOURCE_REFUSED',
  'SOURCE_STATUS',
]);

export function openListSource(access: SourceAccess): ListSource {
  const { baseUrl } = access;
  return {
    async page(request, signal) {
      try {
        return await requestPage(access, request, signal);
      } catch (error) {
        if (
          signal.aborted ||
          request.isOneAttempt ||
          !AMBIGUOUS.has(errorCode(error))
        )
          throw error;
        throw await diagnose(access, request, error, signal);
      }
    },

    async party(id, signal) {
      const partyId = canonicalPartyId(id);
      if (partyId === undefined) {
        const shown = id.slice(0, SHOWN_MAX);
        const state = `${JSON.stringify(shown)} is not a party id`;
        const details = { code: 'PARTY_ID', meta: { id: shown } };
        throw new PermanentError(`Cannot look up a party: ${state}`, details);
      }
      const rows = await lookUp(access, partyId, signal);
      const [row] = rows;
      // A source that does not support the filter ignores it and sends an arbitrary
      // party or all of them.
      if (rows.length > 1 || (row !== undefined && row.key !== partyId)) {
        const answer = `${row?.key ?? 'nothing'} and ${rows.length} rows`;
        throw new PermanentError(
          `Cannot look up party ${partyId} at ${baseUrl}: the source answers with ${answer}, so it did not filter`,
          { code: 'PAGE_SHAPE', meta: { asked: partyId, rows: rows.length } },
        );
      }
      return row;
    },
  };
}

/**
 * Requests one page, always with a size, because some releases otherwise send the whole
 * list.
 */
function requestPage(
  access: SourceAccess,
  request: PageRequest,
  signal: AbortSignal,
): Promise<Page> {
  const { list, after, size, newestFirst, fromEnd = false } = request;
  if (after === '')
    throw new TypeError('an empty cursor requests something else');
  const parameters = {
    [fromEnd ? 'pagination.last' : 'pagination.first']: String(size),
    'pagination.newestFirst': String(newestFirst),
    ...(after === undefined ? {} : { 'pagination.after': after }),
  };
  const { isOneAttempt, isSmall } = request;
  const query = { list, parameters, rowsMax: size, isOneAttempt, isSmall };
  return requestRows(access, query, signal);
}

async function lookUp(
  access: SourceAccess,
  partyId: string,
  signal: AbortSignal,
): Promise<Page['rows']> {
  const query: ListQuery = {
    list: 'parties',
    parameters: { partyId },
    rowsMax: LOOK_UP_ROWS_MAX,
  };
  try {
    const { rows } = await requestRows(access, query, signal);
    return rows;
  } catch (error) {
    if (isUnknownId(error)) return [];
    throw error;
  }
}

interface ListQuery {
  readonly list: ListName;
  readonly parameters: Readonly<Record<string, string>>;
  /** Maximum number of rows in the response. */
  readonly rowsMax: number;
  readonly isOneAttempt?: boolean | undefined;
  readonly isSmall?: boolean | undefined;
}

function requestRows(
  { requester, baseUrl, limits: given }: SourceAccess,
  { list, parameters, rowsMax, isOneAttempt, isSmall }: ListQuery,
  signal: AbortSignal,
): Promise<Page> {
  // URLSearchParams percent-encodes the query. Otherwise the `+` in a raw base64 cursor
  // would arrive as a space.
  const query = new URLSearchParams(parameters).toString();
  const url = new URL(`${baseUrl}/api/v2/${list}?${query}`);
  const limits = given?.list ?? LIST_LIMITS;
  const callMs = Math.min(limits.callMs, SMALL_CALL_MS);
  const retries = given?.listRetries ?? LIST_RETRIES;
  const attemptsMax = Math.min(retries.attemptsMax, SMALL_ATTEMPTS_MAX);
  const patient = isSmall ? { ...retries, attemptsMax } : retries;
  const request: SourceRequest = {
    route: list,
    action: `read the list of ${list} from`,
    url,
    limits: isSmall ? { ...limits, callMs } : limits,
    retries: isOneAttempt ? ONE_ATTEMPT : patient,
  };
  return requester
    .read(request, signal, (answer) => readPage(list, url, answer, rowsMax))
    .catch((error: unknown) => {
      throw asSilence(error);
    });
}

/**
 * A list page is a small request, so a source that sends no headers within half a
 * minute is treated as unreachable. An export, in contrast, may take a long time to
 * send its first row.
 */
function asSilence(error: unknown): unknown {
  const isSilent =
    error instanceof RetryableError &&
    error.meta['errno'] === 'UND_ERR_HEADERS_TIMEOUT';
  if (!isSilent) return error;
  const { message, code, meta } = error;
  return new RetryableError(message, {
    code,
    meta: { ...meta, isSilent },
    cause: error,
  });
}

/**
 * Finds out why the source refused a page. The source uses the same codes for a bad
 * cursor, a bad size and a broken table. Further requests, each of which changes only
 * one thing, show which of them is the cause.
 * @returns the error to report
 */
async function diagnose(
  access: SourceAccess,
  request: PageRequest,
  error: unknown,
  signal: AbortSignal,
): Promise<unknown> {
  const { list, newestFirst, size, after, fromEnd = false } = request;

  /**
   * Requests a page without the cursor.
   * @returns the code of the failure; undefined if a page arrived
   */
  async function probe(rows: number): Promise<string | undefined> {
    try {
      await requestPage(access, { list, newestFirst, size: rows }, signal);
      return undefined;
    } catch (failed) {
      signal.throwIfAborted();
      return errorCode(failed);
    }
  }

  if (after !== undefined) {
    const code = await probe(size);
    if (code === undefined) {
      const state =
        'the source responds without the cursor, and refuses it with one';
      return recoded(error, 'CURSOR_REFUSED', state);
    }
    if (!AMBIGUOUS.has(code)) return error;
  }
  if (size <= PROBE_ROWS || fromEnd) return error;
  const smallPageCode = await probe(PROBE_ROWS);
  if (smallPageCode !== undefined) return error;
  const state = `the source refuses ${size} rows a page; lower SOURCE_PAGE_SIZE`;
  return recoded(error, 'PAGE_TOO_LARGE', state);
}

async function readPage(
  list: ListName,
  url: URL,
  answer: OpenAnswer,
  rowsMax: number,
): Promise<Page> {
  const body = await readWhole(answer.body, PAGE_BYTES_MAX);
  try {
    return {
      ...parsePage(list, body, rowsMax),
      bytes: body.length,
      ...readSourceClock(answer.headers),
    };
  } catch (error) {
    const isNotAPage = errorCode(error) === 'ANSWER_NOT_UNDERSTOOD';
    if (!isNotAPage || errorBodyOf(body) === undefined) throw error;
    // Proxies may forward the service's error bodies with status 200.
    throw answerError(`list ${list}`, whereOf(url), {
      status: 200,
      headers: answer.headers,
      body,
    });
  }
}

/**
 * Whether the source reports that the id is unknown. The service's own 404 has a code;
 * a 404 without one means that the path is wrong.
 */
function isUnknownId(error: unknown): boolean {
  const isAbsent =
    error instanceof PermanentError && error.code === 'SOURCE_ABSENT';
  return isAbsent && error.meta['code'] === GRPC_NOT_FOUND;
}

function recoded(error: unknown, code: string, state: string): PermanentError {
  const message = error instanceof Error ? error.message : String(error);
  const meta = error instanceof PermanentError ? error.meta : {};
  return new PermanentError(`${message}; ${state}`, {
    code,
    meta,
    cause: error,
  });
}
