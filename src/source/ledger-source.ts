/**
 * The export over HTTP: a request with the source's parameters, an answer as plain CSV
 * bytes.
 */
import type { Config } from '../config/environment.ts';
import { errorCode, PermanentError } from '../errors/errors.ts';
import { canonicalId, isExportableParty } from '../ledger/ids.ts';
import { formatInstant, SECOND_MICROS, type Micros } from '../time/time.ts';
import type {
  ExportAnswer,
  WindowRequest,
  LedgerSource,
} from '../exports/ports.ts';
import { AnswerReader } from '../ledger/answer/answer-reader.ts';
import { type CsvDialect, hasTimes, translated } from '../ledger/dialect.ts';
import type { OpenAnswer, Question, SourceAccess } from './caller.ts';
import { EXPORT_LIMITS } from './wire/http.ts';
import { EXPORT_RETRIES } from './retry/retry.ts';

/** The service's detail code for "missing asset ID". */
const DETAIL_ASSET_REQUIRED = 10_017;

const UNITS_PER_SECOND = { ns: 1_000_000_000n, ms: 1000n, s: 1n } as const;

/** How the source names its export and what it is asked by. */
type ExportNames = Pick<
  Config,
  | 'sourceExportPath'
  | 'sourceExportTime'
  | `sourceExportParam${'Party' | 'Asset' | 'From' | 'To'}`
>;
export type ExportConfig = ExportNames &
  Partial<
    Pick<
      Config,
      | 'sourceAssets'
      | `export${'Columns' | 'Delimiter' | 'TimeFormat' | 'IdFormat'}`
    >
  >;

export function openLedgerSource(
  { caller, limits, baseUrl }: SourceAccess,
  config: ExportConfig,
): LedgerSource {
  const dialect = exportDialect(config);

  async function ask(
    question: WindowRequest,
    signal: AbortSignal,
  ): Promise<ExportAnswer> {
    let reader: AnswerReader | undefined;
    const request: Question = {
      route: 'export',
      action: 'export from',
      url: exportUrl(baseUrl, config, question),
      limits: limits?.export ?? EXPORT_LIMITS,
      retries: limits?.exportRetries ?? EXPORT_RETRIES,
      // Without blank lines.
      usefulBytes: () => reader?.csvBytes ?? 0,
    };
    try {
      const answer = await caller.open(request, signal);
      const csv = new AnswerReader(answer.body, undefined, dialect?.delimiter);
      reader = csv;
      return {
        chunks: untilDone(
          answer,
          dialect === undefined ? csv : translated(csv, dialect, question),
        ),
        isFramed: answer.isFramed,
        form: () => csv.form,
        [Symbol.asyncDispose]: () => answer.done(),
      };
    } catch (error) {
      throw refusal(error, question);
    }
  }

  return { baseUrl, ask, hasTimes: dialect === undefined || hasTimes(dialect) };
}

/** @returns undefined where the settings describe the public service's CSV */
function exportDialect(config: ExportConfig): CsvDialect | undefined {
  const {
    exportColumns,
    exportDelimiter = ',',
    exportTimeFormat = 'rfc3339',
    exportIdFormat = 'hex',
  } = config;
  const isUsual =
    exportDelimiter === ',' &&
    exportTimeFormat === 'rfc3339' &&
    exportIdFormat === 'hex';
  if (exportColumns === undefined && isUsual) return undefined;
  const [assetId, ...others] = config.sourceAssets ?? [];
  return {
    columns: exportColumns ?? new Map(),
    delimiter: exportDelimiter,
    times: exportTimeFormat,
    ids: exportIdFormat,
    assetId: others.length === 0 ? assetId : undefined,
  };
}

async function* untilDone(
  answer: OpenAnswer,
  csv: AsyncIterable<Buffer>,
): AsyncGenerator<Buffer, void, undefined> {
  try {
    yield* csv;
  } catch (error) {
    await answer.done(error);
    throw error;
  }
  await answer.done();
}

/**
 * @throws PermanentError `EXPORT_QUESTION` for an invalid id or a fraction of a second,
 *   and for an end without a beginning, which has crashed nodes of the public service
 */
export function exportUrl(
  baseUrl: string,
  names: ExportNames,
  question: WindowRequest,
): URL {
  const { partyId, listedAs = partyId, assetId, from, to } = question;
  if (!isExportableParty(partyId))
    throw badQuestion(`${shown(partyId)} is no party that can be exported`);
  if (assetId !== undefined && canonicalId(assetId) !== assetId)
    throw badQuestion(`${shown(assetId)} is no asset id`);
  if (to !== undefined && (from === undefined || to <= from)) {
    throw badQuestion('an end needs a beginning before it');
  }
  const instant = (at: Micros | undefined): string | undefined =>
    at === undefined ? undefined : instantText(at, names.sourceExportTime);
  const url = new URL(`${baseUrl}${names.sourceExportPath}`);
  const parameters = [
    [names.sourceExportParamParty, listedAs],
    [names.sourceExportParamAsset, assetId],
    [names.sourceExportParamFrom, instant(from)],
    [names.sourceExportParamTo, instant(to)],
  ] as const;
  for (const [name, value] of parameters)
    if (value !== undefined) url.searchParams.set(name, value);
  return url;
}

function instantText(
  instant: Micros,
  unit: ExportNames['sourceExportTime'],
): string {
  if (instant % SECOND_MICROS !== 0n)
    throw badQuestion(`${instant} µs is not a whole second`);
  if (unit === 'rfc3339') return `${formatInstant(instant).slice(0, 19)}Z`;
  return String((instant / SECOND_MICROS) * UNITS_PER_SECOND[unit]);
}

/** A refused request concerns one export; a refused client concerns all of them. */
function refusal(error: unknown, question: WindowRequest): unknown {
  if (!(error instanceof PermanentError)) return error;
  const { meta, message } = error;
  if (
    question.assetId === undefined &&
    meta['detailCode'] === DETAIL_ASSET_REQUIRED
  ) {
    return new PermanentError(
      `${message}; name the assets to ask for in SOURCE_ASSETS`,
      {
        code: 'ASSET_REQUIRED',
        meta,
        cause: error,
      },
    );
  }
  // A 404 without the service's own code means a wrong path, which is no party's fault.
  const isAbsent =
    errorCode(error) === 'SOURCE_ABSENT' && meta['detailCode'] !== undefined;
  if (errorCode(error) !== 'SOURCE_REFUSED' && !isAbsent) return error;
  return new PermanentError(message, {
    code: 'EXPORT_REFUSED',
    meta,
    cause: error,
  });
}

function badQuestion(state: string): PermanentError {
  return new PermanentError(`Cannot export: ${state}`, {
    code: 'EXPORT_QUESTION',
  });
}

function shown(text: string): string {
  return JSON.stringify(text.slice(0, 80));
}
