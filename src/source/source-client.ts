/** Opens the source: one client for the lists and the export, behind one gate. */
import type { Config } from '../config/environment.ts';
import { UsageError } from '../core/errors.ts';
import type { Log } from '../core/log.ts';
import { version } from '../core/version.ts';
import type { LedgerSource } from '../export/ports.ts';
import type { CsvDialect } from '../ledger/dialect.ts';
import type { ListSource } from '../list-sync/ports.ts';
import { SourceCaller } from './caller.ts';
import { openDispatcher } from './wire/dispatcher.ts';
import { CONNECT_MS, SourceHttp, type HttpLimits } from './wire/http.ts';
import { HttpLedgerSource, type ExportNames } from './ledger-source.ts';
import { LatencyObserver, type ListLatency } from './latency.ts';
import { HttpListSource } from './lists/list-source.ts';
import type { BanStore, Clock, RateState, SourceObserver } from './ports.ts';
import { RateLimiter, SYSTEM_CLOCK } from './rate-limit.ts';
import type { RetryLimits } from './retry/retry.ts';

/** The settings that concern the source. */
export type SourceConfig = ExportNames &
  Pick<Config, 'sourceUrl' | 'sourceRate' | 'ambient'> &
  Partial<
    Pick<
      Config,
      'sourceAuthorization' | 'sourceAssets' | `export${'Columns' | 'Delimiter' | 'TimeFormat' | 'IdFormat'}`
    >
  >;

export interface SourceDeps {
  /** Shared by all workers. */
  readonly rate: RateState;
  readonly bans: BanStore;
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
    state: deps.rate,
    bans: deps.bans,
    clock,
    observer,
  });
  const http = new SourceHttp({
    dispatcher,
    userAgent: `ledger-mirror/${version()}`,
    authorization: config.sourceAuthorization ?? authorization,
    acceptGzip: deps.acceptGzip ?? true,
  });
  const caller = new SourceCaller({ http, rate, clock, observer, log: deps.log });
  const close = (): Promise<void> => dispatcher.destroy();
  return {
    lists: new HttpListSource({ caller, baseUrl, limits: limits.list, retries: limits.listRetries }),
    ledger: new HttpLedgerSource({
      caller,
      baseUrl,
      names: config,
      dialect: exportDialect(config),
      limits: limits.export,
      retries: limits.exportRetries,
    }),
    listLatency: () => observer.listLatency(),
    close,
    [Symbol.asyncDispose]: close,
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
