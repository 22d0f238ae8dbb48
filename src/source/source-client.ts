/** Opens the source: one client for the lists and the export, behind one gate. */
import { UsageError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import type { LedgerSource } from '../export/ports.ts';
import type { CsvDialect, IdFormat, TimeFormat } from '../ledger/dialect.ts';
import type { KnownColumn } from '../ledger/header.ts';
import type { ListSource } from '../list-sync/ports.ts';
import { SourceCaller } from './caller.ts';
import { openDispatcher } from './wire/dispatcher.ts';
import { CONNECT_MS, SourceHttp, type HttpLimits } from './wire/http.ts';
import { HttpLedgerSource, type ExportNames } from './ledger-source.ts';
import { LatencyObserver, type ListLatency } from './latency.ts';
import { HttpListSource } from './lists/list-source.ts';
import type { BanStore, Clock, RateState, SourceObserver } from './ports.ts';
import { localBans, localRate, RateLimiter, SYSTEM_CLOCK } from './rate-limit.ts';
import type { RetryLimits } from './retry/retry.ts';

/** The part of the configuration that concerns the source. */
export interface SourceConfig {
  readonly sourceUrl: URL | undefined;
  readonly sourceAuthorization?: string | undefined;
  readonly sourceRate: number;
  readonly sourceExportPath: string;
  readonly sourceExportParamParty: string;
  readonly sourceExportParamAsset: string;
  readonly sourceExportParamFrom: string;
  readonly sourceExportParamTo: string;
  readonly sourceExportTime: 'ns' | 'ms' | 's' | 'rfc3339';
  readonly sourceAssets?: readonly string[] | undefined;
  readonly exportColumns?: ReadonlyMap<KnownColumn, string | null> | undefined;
  readonly exportDelimiter?: string | undefined;
  readonly exportTimeFormat?: TimeFormat | undefined;
  readonly exportIdFormat?: IdFormat | undefined;
  readonly ambient: Readonly<Record<string, string>>;
}

export interface SourceDeps {
  /** For the User-Agent. */
  readonly version?: string;
  /** The rate limit shared by all workers. Absent: this process has its own. */
  readonly rate?: RateState;
  /** Bans shared by all workers. Absent: this process keeps its own. */
  readonly bans?: BanStore;
  /** Told of every request and wait, for metrics. */
  readonly observer?: SourceObserver;
  /** Logs each retry and its reason. */
  readonly log?: Pick<Log, 'warn'>;
  readonly clock?: Clock;
  /** False for a source on this machine. */
  readonly acceptGzip?: boolean;
  readonly limits?:
    | {
        readonly connectMs?: number;
        readonly list?: HttpLimits;
        readonly export?: HttpLimits;
        readonly listRetries?: RetryLimits;
        readonly exportRetries?: RetryLimits;
      }
    | undefined;
}

export interface Source extends AsyncDisposable {
  /** Origin and path, without credentials: safe to store and to log. */
  readonly baseUrl: string;
  readonly lists: ListSource;
  readonly ledger: LedgerSource;
  /** Undefined before the first good answer of a list. */
  listLatency(): ListLatency | undefined;
  /** Aborts requests in flight. */
  close(): Promise<void>;
}

/**
 * Opens no connection; the first request does.
 * @throws UsageError where SOURCE_URL is missing, or a proxy's URL or the file of CAs is invalid
 */
export function openSource(config: SourceConfig, deps: SourceDeps): Source {
  if (config.sourceUrl === undefined) {
    throw new UsageError([
      'SOURCE_URL: not given, and this command asks the source; give an http:// or https:// URL',
    ]);
  }
  const { baseUrl, authorization } = splitUrl(config.sourceUrl);
  const { limits = {}, clock = SYSTEM_CLOCK } = deps;
  const dispatcher = openDispatcher({ ambient: config.ambient, connectMs: limits.connectMs ?? CONNECT_MS });
  const observer = new LatencyObserver(deps.observer);
  const rate = new RateLimiter({
    ratePerSecond: config.sourceRate,
    state: deps.rate ?? localRate(clock),
    bans: deps.bans ?? localBans(),
    clock,
    observer,
  });
  const http = new SourceHttp({
    dispatcher,
    userAgent: deps.version === undefined ? 'ledger-mirror' : `ledger-mirror/${deps.version}`,
    authorization: config.sourceAuthorization ?? authorization,
    acceptGzip: deps.acceptGzip ?? true,
  });
  const caller = new SourceCaller({ http, rate, clock, observer, log: deps.log });
  const close = (): Promise<void> => dispatcher.destroy();
  return {
    baseUrl,
    lists: new HttpListSource({
      caller,
      baseUrl,
      ...(limits.list === undefined ? {} : { limits: limits.list }),
      ...(limits.listRetries === undefined ? {} : { retries: limits.listRetries }),
    }),
    ledger: new HttpLedgerSource({
      caller,
      baseUrl,
      names: exportNames(config),
      dialect: exportDialect(config),
      ...(limits.export === undefined ? {} : { limits: limits.export }),
      ...(limits.exportRetries === undefined ? {} : { retries: limits.exportRetries }),
    }),
    listLatency: () => observer.listLatency(),
    close,
    [Symbol.asyncDispose]: close,
  };
}

function exportNames(config: SourceConfig): ExportNames {
  return {
    path: config.sourceExportPath,
    party: config.sourceExportParamParty,
    asset: config.sourceExportParamAsset,
    from: config.sourceExportParamFrom,
    to: config.sourceExportParamTo,
    time: config.sourceExportTime,
  };
}

/** @returns undefined where the settings describe the public service's CSV */
function exportDialect(config: SourceConfig): CsvDialect | undefined {
  const {
    exportColumns,
    exportDelimiter = ',',
    exportTimeFormat = 'rfc3339',
    exportIdFormat = 'hex',
  } = config;
  const isUsual = exportDelimiter === ',' && exportTimeFormat === 'rfc3339' && exportIdFormat === 'hex';
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

/** Credentials in the URL are sent as a header, and appear nowhere else. */
function splitUrl(url: URL): { baseUrl: string; authorization: string | undefined } {
  const baseUrl = `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
  if (url.username === '' && url.password === '') return { baseUrl, authorization: undefined };
  const pair = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return { baseUrl, authorization: `Basic ${Buffer.from(pair).toString('base64')}` };
}
