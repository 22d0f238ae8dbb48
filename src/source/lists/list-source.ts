/**
 * The two lists over HTTP: requests that are never ambiguous, answers that are never
 * guessed.
 */
import { errorCode, PermanentError } from '../../errors/errors.ts';
import { canonicalPartyId } from '../../ledger/ids.ts';
import type {
  ListName,
  ListSource,
  Page,
  PageRequest,
} from '../../lists/ports.ts';
import { readSourceClock } from '../wire/answer-headers.ts';
import { readWhole } from '../wire/body.ts';
import type { OpenAnswer, SourceAccess } from '../caller.ts';
import { answerError, errorBodyOf } from '../retry/failure.ts';
import { LIST_LIMITS, whereOf } from '../wire/http.ts';
import { parsePage } from './page.ts';
import { LIST_RETRIES } from '../retry/retry.ts';

/** The service itself ends at 20 MiB, before its answer is written as JSON. */
export const PAGE_BYTES_MAX = 32 * 2 ** 20;
/** A source that does not know the filter of a look-up sends a page of its own size. */
const LOOK_UP_ROWS_MAX = 5_000;
/** The page size that no release refuses. */
const PROBE_ROWS = 1;
const GRPC_NOT_FOUND = 5;

/**
 * Failures that a cursor or a page size may cause: the public service answers a forged
 * cursor with 500.
 */
const DOUBTFUL: ReadonlySet<string> = new Set([
  'SOURCE_REFUSED',
  'SOURCE_STATUS',
]);

export function openListSource({
  caller,
  baseUrl,
  limits: given,
}: SourceAccess): ListSource {
  const { list: limits = LIST_LIMITS, listRetries: retries = LIST_RETRIES } =
    given ?? {};

  function ask(
    list: ListName,
    parameters: Record<string, string>,
    rowsMax: number,
    signal: AbortSignal,
  ) {
    // Percent-encodes: the `+` of a raw base64 cursor would arrive as a space.
    const url = new URL(
      `${baseUrl}/api/v2/${list}?${new URLSearchParams(parameters).toString()}`,
    );
    const question = {
      route: list,
      action: `read the list of ${list} from`,
      url,
      limits,
      retries,
    };
    return caller.read(question, signal, (answer) =>
      readPage(list, url, answer, rowsMax),
    );
  }

  /** A size is always sent: without one, some releases send the whole list. */
  function askPage(
    { list, after, size, newestFirst, fromEnd = false }: PageRequest,
    signal: AbortSignal,
  ) {
    if (after === '')
      throw new TypeError('an empty cursor asks for something else');
    const parameters = {
      [fromEnd ? 'pagination.last' : 'pagination.first']: String(size),
      'pagination.newestFirst': String(newestFirst),
      ...(after === undefined ? {} : { 'pagination.after': after }),
    };
    return ask(list, parameters, size, signal);
  }

  /**
   * The source refuses a cursor, a size and a broken table with the same codes. One more
   * question that differs in the suspect alone tells them apart.
   */
  async function diagnose(
    question: PageRequest,
    error: unknown,
    signal: AbortSignal,
  ) {
    const { list, newestFirst, size, after, fromEnd } = question;
    // The failure's code, or undefined where the page came.
    const probe = (rows: number) =>
      askPage({ list, newestFirst, size: rows }, signal).then(
        () => undefined,
        (failed: unknown) => {
          signal.throwIfAborted();
          return errorCode(failed);
        },
      );
    if (after !== undefined) {
      const code = await probe(size);
      if (code === undefined) {
        return recoded(
          error,
          'CURSOR_REFUSED',
          'the source answers without the cursor, and refuses it',
        );
      }
      if (!DOUBTFUL.has(code)) return error;
    }
    if (
      size <= PROBE_ROWS ||
      fromEnd === true ||
      (await probe(PROBE_ROWS)) !== undefined
    )
      return error;
    return recoded(
      error,
      'PAGE_TOO_LARGE',
      `the source refuses ${size} rows a page; lower SOURCE_PAGE_SIZE`,
    );
  }

  return {
    async page(question, signal) {
      try {
        return await askPage(question, signal);
      } catch (error) {
        if (signal.aborted || !DOUBTFUL.has(errorCode(error))) throw error;
        throw await diagnose(question, error, signal);
      }
    },
    async party(id, signal) {
      const asked = canonicalPartyId(id);
      if (asked === undefined) {
        const shown = id.slice(0, 80);
        const message = `Cannot look up a party: ${JSON.stringify(shown)} is no party id`;
        throw new PermanentError(message, {
          code: 'PARTY_ID',
          meta: { id: shown },
        });
      }
      const { rows } = await ask(
        'parties',
        { partyId: asked },
        LOOK_UP_ROWS_MAX,
        signal,
      ).catch(noneOfThatId);
      const [row] = rows;
      // A source that does not know the filter ignores it, and sends any party, or all of
      // them.
      if (rows.length > 1 || (row !== undefined && row.key !== asked)) {
        throw new PermanentError(
          `Cannot look up party ${asked} at ${baseUrl}: the source answers with ` +
            `${row?.key ?? 'nothing'} and ${rows.length} rows, so it did not filter`,
          { code: 'PAGE_SHAPE', meta: { asked, rows: rows.length } },
        );
      }
      return row;
    },
  };
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
      ...readSourceClock(answer.headers),
    };
  } catch (error) {
    // Proxies send the service's error bodies with 200.
    if (
      errorCode(error) !== 'ANSWER_NOT_UNDERSTOOD' ||
      errorBodyOf(body) === undefined
    )
      throw error;
    throw answerError(`list ${list}`, whereOf(url), {
      status: 200,
      headers: answer.headers,
      body,
    });
  }
}

/** A 404 of the service has its own code; one without it means that the path is wrong. */
function noneOfThatId(error: unknown): Pick<Page, 'rows'> {
  const isAbsent =
    error instanceof PermanentError && error.code === 'SOURCE_ABSENT';
  if (isAbsent && error.meta['code'] === GRPC_NOT_FOUND) return { rows: [] };
  throw error;
}

function recoded(error: unknown, code: string, state: string): PermanentError {
  const said = error instanceof Error ? error.message : String(error);
  const meta = error instanceof PermanentError ? error.meta : {};
  return new PermanentError(`${said}; ${state}`, { code, meta, cause: error });
}
