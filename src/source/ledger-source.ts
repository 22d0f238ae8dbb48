/**
 * The export over HTTP: sends a request with the source's parameters, and returns the
 * response as plain CSV bytes.
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
import {
  EXPORT_RETRIES,
  type OpenAnswer,
  type SourceAccess,
  type SourceRequest,
} from './requester.ts';
import { readAnswerHead } from './wire/answer-headers.ts';
import { EXPORT_LIMITS } from './wire/http.ts';

/** The service's detail code for "missing asset ID". */
const DETAIL_ASSET_REQUIRED = 10_017;

const UNITS_PER_SECOND = { ns: 1_000_000_000n, ms: 1000n, s: 1n } as const;

/** The path and the parameters of the source's export. */
export interface ExportNames {
  readonly sourceExportPath: string;
  readonly sourceExportParamParty: string;
  readonly sourceExportParamAsset: string;
  readonly sourceExportParamFrom: string;
  readonly sourceExportParamTo: string;
  /** The format of the two time parameters. */
  readonly sourceExportTime: Config['sourceExportTime'];
}

/**
 * The export's settings. Those that describe a different CSV are unset for the public
 * service.
 */
export interface ExportConfig extends ExportNames {
  readonly sourceAssets?: Config['sourceAssets'];
  readonly exportColumns?: Config['exportColumns'];
  readonly exportDelimiter?: Config['exportDelimiter'];
  readonly exportTimeFormat?: Config['exportTimeFormat'];
  readonly exportIdFormat?: Config['exportIdFormat'];
}

export function openLedgerSource(
  { requester, limits, baseUrl }: SourceAccess,
  config: ExportConfig,
): LedgerSource {
  const dialect = exportDialect(config);

  async function ask(
    window: WindowRequest,
    signal: AbortSignal,
  ): Promise<ExportAnswer> {
    let reader: AnswerReader | undefined;
    const request: SourceRequest = {
      route: 'export',
      action: 'export from',
      url: exportUrl(baseUrl, config, window),
      limits: limits?.export ?? EXPORT_LIMITS,
      retries: limits?.exportRetries ?? EXPORT_RETRIES,
      // Blank lines keep a connection alive but are not progress.
      usefulBytes: () => reader?.csvBytes ?? 0,
    };
    let answer: OpenAnswer;
    try {
      answer = await requester.open(request, signal);
    } catch (error) {
      throw refusal(error, window);
    }
    const csv = new AnswerReader(answer.body, undefined, dialect?.delimiter);
    reader = csv;
    const rows = dialect === undefined ? csv : translated(csv, dialect, window);
    return {
      chunks: untilDone(answer, rows),
      isFramed: answer.isFramed,
      head: readAnswerHead(answer.headers),
      form: () => csv.form,
      [Symbol.asyncDispose]: () => answer.done(),
    };
  }

  return { baseUrl, ask, hasTimes: dialect === undefined || hasTimes(dialect) };
}

/**
 * Returns the source's CSV dialect.
 * @returns undefined if the settings describe the public service's CSV
 */
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
    // Every row of a CSV without an asset column belongs to the one configured asset.
    assetId: others.length === 0 ? assetId : undefined,
  };
}

/** Passes the rows on, and closes the response after the last row or an error. */
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
 * Builds the URL of one export.
 * @throws PermanentError `EXPORT_QUESTION` if an id is invalid, a time has fractional
 *   seconds, or there is an end but no start (which has crashed nodes of the public
 *   service)
 */
export function exportUrl(
  baseUrl: string,
  names: ExportNames,
  window: WindowRequest,
): URL {
  const { partyId, listedAs = partyId, assetId, from, to } = window;
  if (!isExportableParty(partyId))
    throw invalidWindow(
      `${quote(partyId)} is not a party that can be exported`,
    );
  if (assetId !== undefined && canonicalId(assetId) !== assetId)
    throw invalidWindow(`${quote(assetId)} is not an asset id`);
  if (to !== undefined && (from === undefined || to <= from))
    throw invalidWindow('the end must be after the beginning');

  function instant(at: Micros | undefined): string | undefined {
    return at === undefined
      ? undefined
      : instantText(at, names.sourceExportTime);
  }

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
    throw invalidWindow(`${instant} µs is not a whole second`);
  if (unit === 'rfc3339') return `${formatInstant(instant).slice(0, 19)}Z`;
  return String((instant / SECOND_MICROS) * UNITS_PER_SECOND[unit]);
}

/**
 * Changes the code of a refusal that concerns only this export. Other refusals concern
 * the client, and thus all exports.
 */
function refusal(error: unknown, window: WindowRequest): unknown {
  if (!(error instanceof PermanentError)) return error;
  const { meta, message } = error;
  if (
    window.assetId === undefined &&
    meta['detailCode'] === DETAIL_ASSET_REQUIRED
  ) {
    const advice = 'name the assets to request in SOURCE_ASSETS';
    return new PermanentError(`${message}; ${advice}`, {
      code: 'ASSET_REQUIRED',
      meta,
      cause: error,
    });
  }
  // A 404 without the service's own code means a wrong path, which affects every party.
  const isAbsent =
    errorCode(error) === 'SOURCE_ABSENT' && meta['detailCode'] !== undefined;
  if (errorCode(error) !== 'SOURCE_REFUSED' && !isAbsent) return error;
  return new PermanentError(message, {
    code: 'EXPORT_REFUSED',
    meta,
    cause: error,
  });
}

function invalidWindow(state: string): PermanentError {
  return new PermanentError(`Cannot export: ${state}`, {
    code: 'EXPORT_QUESTION',
  });
}

function quote(text: string): string {
  return JSON.stringify(text.slice(0, 80));
}
