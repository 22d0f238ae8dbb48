/** Opens the source: one client for the lists and the export, behind one gate. */
import type { Config } from '../config/environment.ts';
import { UsageError } from '../errors/errors.ts';
import type { Log } from '../logging/log.ts';
import { version } from '../version.ts';
import type { LedgerSource } from '../exports/ports.ts';
import type { ListSource } from '../lists/ports.ts';
import { openCaller, type SourceLimits } from './caller.ts';
import { openDispatcher } from './wire/dispatcher.ts';
import { CONNECT_MS, openHttp } from './wire/http.ts';
import { openLedgerSource, type ExportConfig } from './ledger-source.ts';
import { observeLatency, type ListLatency } from './observers.ts';
import { openListSource } from './lists/list-source.ts';
import type { BanStore, Clock, RateState, SourceObserver } from './ports.ts';
import { openRateLimiter, SYSTEM_CLOCK } from './rate-limit.ts';

/** The settings that concern the source. */
export type SourceConfig = ExportConfig &
  Pick<Config, 'sourceUrl' | 'sourceRate' | 'ambient'> &
  Partial<Pick<Config, 'sourceAuthorization'>>;

export interface SourceDeps {
  /** Shared by all workers. */
  readonly rate: RateState;
  readonly bans: BanStore;
  /** Told of every request and wait, for metrics. */
  readonly observer?: SourceObserver;
  /** Logs each retry and its reason. */
  readonly log?: Pick<Log, 'warn'>;
  readonly clock?: Clock;
  /** Saves bandwidth for little CPU at the source; off where both are on one machine. */
  readonly acceptGzip?: boolean;
  readonly limits?: SourceLimits | undefined;
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
 * @throws UsageError where SOURCE_URL is missing, or a proxy's URL or the file of CAs is
 *   invalid
 */
export function openSource(config: SourceConfig, deps: SourceDeps): Source {
  if (config.sourceUrl === undefined) {
    throw new UsageError([
      'SOURCE_URL: not given, and this command asks the source; give an http:// ' +
        'or https:// URL',
    ]);
  }
  const { baseUrl, authorization } = splitUrl(config.sourceUrl);
  const { limits, clock = SYSTEM_CLOCK, acceptGzip = true, log } = deps;
  const dispatcher = openDispatcher(
    config.ambient,
    limits?.connectMs ?? CONNECT_MS,
  );
  const observer = observeLatency(deps.observer);
  const rate = openRateLimiter(config.sourceRate, { ...deps, clock, observer });
  const secret = config.sourceAuthorization ?? authorization;
  const get = openHttp(dispatcher, {
    accept: 'application/json',
    'accept-encoding': acceptGzip ? 'gzip' : 'identity',
    'user-agent': `ledger-mirror/${version()}`,
    ...(secret === undefined ? {} : { authorization: secret }),
  });
  const access = {
    caller: openCaller({ get, rate, clock, observer, log }),
    baseUrl,
    limits,
  };
  const close = (): Promise<void> => dispatcher.destroy();
  return {
    lists: openListSource(access),
    ledger: openLedgerSource(access, config),
    listLatency: () => observer.listLatency(),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Credentials in the URL are sent as a header, and appear nowhere else. */
function splitUrl(url: URL): {
  baseUrl: string;
  authorization: string | undefined;
} {
  const baseUrl = `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
  if (url.username === '' && url.password === '')
    return { baseUrl, authorization: undefined };
  const pair = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
  return {
    baseUrl,
    authorization: `Basic ${Buffer.from(pair).toString('base64')}`,
  };
}
