/** The export over HTTP: a request with the source's parameters, an answer as plain CSV bytes. */
import type { Config } from '../config/environment.ts';
import { errorCode, PermanentError } from '../core/errors.ts';
import { canonicalId, isExportableParty } from '../core/ids.ts';
import { formatInstant, SECOND_MICROS, type Micros } from '../core/time.ts';
import type { ExportAnswer, WindowRequest, LedgerSource } from '../export/ports.ts';
import { AnswerReader } from '../ledger/answer/answer-reader.ts';
import { type CsvDialect, hasTimes, translated } from '../ledger/dialect.ts';
import type { OpenAnswer, Question, SourceCaller } from './caller.ts';
import { EXPORT_LIMITS, type HttpLimits } from './wire/http.ts';
import { EXPORT_RETRIES, type RetryLimits } from './retry/retry.ts';

/** The service's detail code for "missing asset ID". */
const DETAIL_ASSET_REQUIRED = 10_017;

const UNITS_PER_SECOND = { ns: 1_000_000_000n, ms: 1000n, s: 1n } as const;

/** How the source names its export and what it is asked by. */
export type ExportNames = Pick<
  Config,
  | 'sourceExportPath'
  | 'sourceExportParamParty'
  | 'sourceExportParamAsset'
  | 'sourceExportParamFrom'
  | 'sourceExportParamTo'
  | 'sourceExportTime'
>;

export interface LedgerSourceOptions {
  readonly caller: SourceCaller;
  readonly baseUrl: string;
  readonly names: ExportNames;
  /** Absent: the CSV of the public service. */
  readonly dialect?: CsvDialect | undefined;
  readonly limits?: HttpLimits | undefined;
  readonly retries?: RetryLimits | undefined;
}

export class HttpLedgerSource implements LedgerSource {
  readonly baseUrl: string;
  readonly #options: LedgerSourceOptions;

  constructor(options: LedgerSourceOptions) {
    this.baseUrl = options.baseUrl;
    this.#options = options;
  }

  get hasTimes(): boolean {
    const { dialect } = this.#options;
    return dialect === undefined || hasTimes(dialect);
  }

  async ask(question: WindowRequest, signal: AbortSignal): Promise<ExportAnswer> {
    const { caller, names, dialect, limits = EXPORT_LIMITS, retries = EXPORT_RETRIES } = this.#options;
    const request: Question = {
      route: 'export',
      action: 'export from',
      url: exportUrl(this.baseUrl, names, question),
      limits,
      retries,
      usefulBytes: () => reading?.csvBytes ?? 0,
    };
    let reading: HttpExportAnswer | undefined;
    try {
      return (reading = new HttpExportAnswer(await caller.open(request, signal), question, dialect));
    } catch (error) {
      throw refusal(error, question);
    }
  }
}

/**
 * @throws PermanentError `EXPORT_QUESTION` for an invalid id or a fraction of a second, and for an end without
 *   a beginning, which has crashed nodes of the public service
 */
export function exportUrl(baseUrl: string, names: ExportNames, question: WindowRequest): URL {
  const { partyId, listedAs = partyId, assetId, from, to } = question;
  if (!isExportableParty(partyId)) throw badQuestion(`${shown(partyId)} is no party that can be exported`);
  if (assetId !== undefined && canonicalId(assetId) !== assetId)
    throw badQuestion(`${shown(assetId)} is no asset id`);
  if (to !== undefined && (from === undefined || to <= from)) {
    throw badQuestion('an end needs a beginning before it');
  }
  const url = new URL(`${baseUrl}${names.sourceExportPath}`);
  url.searchParams.set(names.sourceExportParamParty, listedAs);
  if (assetId !== undefined) url.searchParams.set(names.sourceExportParamAsset, assetId);
  if (from !== undefined)
    url.searchParams.set(names.sourceExportParamFrom, instantText(from, names.sourceExportTime));
  if (to !== undefined)
    url.searchParams.set(names.sourceExportParamTo, instantText(to, names.sourceExportTime));
  return url;
}

function instantText(instant: Micros, unit: ExportNames['sourceExportTime']): string {
  if (instant % SECOND_MICROS !== 0n) throw badQuestion(`${instant} µs is not a whole second`);
  if (unit === 'rfc3339') return `${formatInstant(instant).slice(0, 19)}Z`;
  return String((instant / SECOND_MICROS) * UNITS_PER_SECOND[unit]);
}

class HttpExportAnswer implements ExportAnswer {
  readonly #answer: OpenAnswer;
  readonly #reader: AnswerReader;
  readonly chunks: AsyncIterable<Buffer>;
  #isDone = false;

  constructor(answer: OpenAnswer, question: WindowRequest, dialect: CsvDialect | undefined) {
    this.#answer = answer;
    this.#reader = new AnswerReader(answer.body, undefined, dialect?.delimiter);
    const csv = dialect === undefined ? this.#reader : translated(this.#reader, dialect, question);
    this.chunks = this.#counted(csv);
  }

  get contentType(): string | undefined {
    // Proxies send the header twice, which Node's types do not show.
    const sent: unknown = this.#answer.headers['content-type'];
    const first: unknown = Array.isArray(sent) ? sent[0] : sent;
    return this.#reader.contentType ?? (typeof first === 'string' ? first : undefined);
  }

  /** Without blank lines. */
  get csvBytes(): number {
    return this.#reader.csvBytes;
  }

  get isFramed(): boolean {
    return this.#answer.framing !== 'none';
  }

  readonly extensions = (): readonly unknown[] => this.#reader.extensions;
  readonly form = (): 'csv' | 'messages' | undefined => this.#reader.form;

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#done(undefined);
  }

  async *#counted(csv: AsyncIterable<Buffer>): AsyncGenerator<Buffer, void, undefined> {
    try {
      yield* csv;
    } catch (error) {
      await this.#done(error);
      throw error;
    }
    await this.#done(undefined);
  }

  async #done(error: unknown): Promise<void> {
    if (this.#isDone) return;
    this.#isDone = true;
    await this.#answer.done(error);
  }
}

/** A refused request concerns one export; a refused client concerns all of them. */
function refusal(error: unknown, question: WindowRequest): unknown {
  if (!(error instanceof PermanentError)) return error;
  const { meta, message } = error;
  if (question.assetId === undefined && meta['detailCode'] === DETAIL_ASSET_REQUIRED) {
    return new PermanentError(`${message}; name the assets to ask for in SOURCE_ASSETS`, {
      code: 'ASSET_REQUIRED',
      meta,
      cause: error,
    });
  }
  // A 404 without the service's own code means a wrong path, which is no party's fault.
  const isAbsent = errorCode(error) === 'SOURCE_ABSENT' && meta['detailCode'] !== undefined;
  if (errorCode(error) !== 'SOURCE_REFUSED' && !isAbsent) return error;
  return new PermanentError(message, { code: 'EXPORT_REFUSED', meta, cause: error });
}

function badQuestion(state: string): PermanentError {
  return new PermanentError(`Cannot export: ${state}`, { code: 'EXPORT_QUESTION' });
}

function shown(text: string): string {
  return JSON.stringify(text.slice(0, 80));
}
