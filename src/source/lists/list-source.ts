/** The two lists over HTTP: requests that are never ambiguous, answers that are never guessed. */
import { errorCode, PermanentError } from '../../core/errors.ts';
import { canonicalPartyId } from '../../core/ids.ts';
import type { ListedRow, ListName, ListSource, Page, PageQuestion } from '../../list-sync/ports.ts';
import { readSourceClock } from '../wire/answer-headers.ts';
import { readWhole } from '../wire/body.ts';
import type { OpenAnswer, SourceAccess } from '../caller.ts';
import { answerError, errorBodyOf } from '../retry/failure.ts';
import { LIST_LIMITS, whereOf } from '../wire/http.ts';
import { parsePage } from './page.ts';
import { RETRY_RULES } from '../retry/retry-policy.ts';
import { LIST_RETRIES } from '../retry/retry.ts';

/** The service itself ends at 20 MiB, before its answer is written as JSON. */
export const PAGE_BYTES_MAX = 32 * 2 ** 20;
/** A source that does not know the filter of a look-up sends a page of its own size. */
const LOOK_UP_ROWS_MAX = 5_000;
/** The page size that no release refuses. */
const PROBE_ROWS = 1;
const GRPC_NOT_FOUND = 5;

/** A sync tries several requests: one that has used up its retries is not retried as often again. */
const ATTEMPTS_AFTER_FAILURE = 2;
const IN_VAIN_MS = 60_000;

/** Failures that a cursor or a page size may cause: the public service answers a forged cursor with 500. */
const DOUBTFUL: ReadonlySet<string> = new Set(['SOURCE_REFUSED', 'SOURCE_STATUS']);

export class HttpListSource implements ListSource {
  readonly #access: SourceAccess;
  #inVainUntilMs = 0;

  constructor(access: SourceAccess) {
    this.#access = access;
  }

  async page(question: PageQuestion, signal: AbortSignal): Promise<Page> {
    try {
      return await this.#page(question, signal);
    } catch (error) {
      if (signal.aborted || !DOUBTFUL.has(errorCode(error))) throw error;
      throw await this.#diagnosis(question, error, signal);
    }
  }

  async party(id: string, signal: AbortSignal): Promise<ListedRow | undefined> {
    const asked = canonicalPartyId(id);
    if (asked === undefined) {
      throw new PermanentError(`Cannot look up a party: ${JSON.stringify(id.slice(0, 80))} is no party id`, {
        code: 'PARTY_ID',
        meta: { id: id.slice(0, 80) },
      });
    }
    let rows: Page['rows'];
    try {
      ({ rows } = await this.#ask('parties', { partyId: asked }, LOOK_UP_ROWS_MAX, signal));
    } catch (error) {
      if (errorCode(error) === 'SOURCE_ABSENT' && isOwnNotFound(error)) return undefined;
      throw error;
    }
    const [row] = rows;
    // A source that does not know the filter ignores it, and sends any party, or all of them.
    if (rows.length > 1 || (row !== undefined && row.key !== asked)) {
      throw new PermanentError(
        `Cannot look up party ${asked} at ${this.#access.baseUrl}: the source answers with ${row?.key ?? 'nothing'} and ${rows.length} rows, so it did not filter`,
        { code: 'PAGE_SHAPE', meta: { asked, rows: rows.length } },
      );
    }
    return row;
  }

  /** A size is always sent: without one, some releases send the whole list. */
  #page(question: PageQuestion, signal: AbortSignal): Promise<Page> {
    const { list, after, size, newestFirst, fromEnd = false } = question;
    if (after === '') throw new TypeError('an empty cursor asks for something else');
    const parameters = {
      [fromEnd ? 'pagination.last' : 'pagination.first']: String(size),
      'pagination.newestFirst': String(newestFirst),
      ...(after === undefined ? {} : { 'pagination.after': after }),
    };
    return this.#ask(list, parameters, size, signal);
  }

  async #ask(
    list: ListName,
    parameters: Record<string, string>,
    rowsMax: number,
    signal: AbortSignal,
  ): Promise<Page> {
    const { caller, baseUrl, limits: given } = this.#access;
    const { list: limits = LIST_LIMITS, listRetries: retries = LIST_RETRIES } = given ?? {};
    const isInVain = performance.now() < this.#inVainUntilMs;
    const attemptsMax = Math.min(retries.attemptsMax, isInVain ? ATTEMPTS_AFTER_FAILURE : Infinity);
    // Percent-encodes: the `+` of a raw base64 cursor would arrive as a space.
    const url = new URL(`${baseUrl}/api/v2/${list}?${new URLSearchParams(parameters).toString()}`);
    const action = `read the list of ${list} from`;
    const question = { route: list, action, url, limits, retries: { ...retries, attemptsMax } };
    try {
      const page = await caller.read(question, signal, (answer) => readPage(list, url, answer, rowsMax));
      this.#inVainUntilMs = 0;
      return page;
    } catch (error) {
      // A busy or unreachable source is waited for each time.
      const isBroken = RETRY_RULES[errorCode(error)]?.isCheap === false && !signal.aborted;
      if (isBroken) this.#inVainUntilMs = performance.now() + IN_VAIN_MS;
      throw error;
    }
  }

  /**
   * The source refuses a cursor, a size and a broken table with the same codes. One more question
   * that differs in the suspect alone tells them apart.
   */
  async #diagnosis(question: PageQuestion, error: unknown, signal: AbortSignal): Promise<unknown> {
    const { list, newestFirst, size, after, fromEnd } = question;
    // The failure's code, or undefined where the page came.
    const probe = (rows: number): Promise<string | undefined> =>
      this.#page({ list, newestFirst, size: rows }, signal).then(
        () => undefined,
        (failed: unknown) => {
          signal.throwIfAborted();
          return errorCode(failed);
        },
      );
    if (after !== undefined) {
      const code = await probe(size);
      if (code === undefined) {
        return recoded(error, 'CURSOR_REFUSED', 'the source answers without the cursor, and refuses it');
      }
      if (!DOUBTFUL.has(code)) return error;
    }
    if (size <= PROBE_ROWS || fromEnd === true || (await probe(PROBE_ROWS)) !== undefined) return error;
    return recoded(error, 'PAGE_TOO_LARGE', `the source refuses ${size} rows a page; lower SOURCE_PAGE_SIZE`);
  }
}

async function readPage(list: ListName, url: URL, answer: OpenAnswer, rowsMax: number): Promise<Page> {
  const body = await readWhole(answer.body, PAGE_BYTES_MAX);
  try {
    return { ...parsePage(list, body, rowsMax), ...readSourceClock(answer.headers) };
  } catch (error) {
    // Proxies send the service's error bodies with 200.
    if (errorCode(error) !== 'ANSWER_NOT_UNDERSTOOD' || errorBodyOf(body) === undefined) throw error;
    throw answerError(`list ${list}`, whereOf(url), { status: 200, headers: answer.headers, body });
  }
}

/** A 404 of the service has its own code; one without it means that the path is wrong. */
function isOwnNotFound(error: unknown): boolean {
  return error instanceof PermanentError && error.meta['code'] === GRPC_NOT_FOUND;
}

function recoded(error: unknown, code: string, state: string): PermanentError {
  const said = error instanceof Error ? error.message : String(error);
  const meta = error instanceof PermanentError ? error.meta : {};
  return new PermanentError(`${said}; ${state}`, { code, meta, cause: error });
}
