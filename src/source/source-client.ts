/**
 * Opens the source: one client for the lists and the export, with a shared rate limit.
 */
import type { Config } from '../config/environment.ts';
import { UsageError } from '../errors/errors.ts';
import type { LedgerSource } from '../exports/ports.ts';
import type { ListSource } from '../lists/ports.ts';
import type { Log } from '../logging/log.ts';
import {
  certificateOf,
  type ClientCertificate,
} from '../network/client-certificate.ts';
import { openHttpClient } from '../network/http-client.ts';
import { RotatingSecret } from '../network/rotating-secret.ts';
import { version } from '../version.ts';
import { openLedgerSource, type ExportConfig } from './ledger-source.ts';
import { openListSource } from './lists/list-source.ts';
import { openProofSource, type ProofSource } from './proof-source.ts';
import { LatencyObserver, type ListLatency } from './list-latency.ts';
import type { BanStore, Clock, RateState, SourceObserver } from './ports.ts';
import { RateLimiter, SYSTEM_CLOCK } from './rate-limit.ts';
import { SourceRequester, type SourceLimits } from './requester.ts';
import { openHttp } from './wire/http.ts';

/** The settings for the source; `Config` has all of them. */
export interface SourceConfig extends ExportConfig {
  readonly sourceUrl: URL | undefined;
  /** Requests per second, across all workers. */
  readonly sourceRate: number;
  /** The Authorization header. If absent, the user and password in the URL are sent. */
  readonly sourceAuthorization?: string | undefined;
  /** Additional headers for each request, by lower-case name. */
  readonly sourceHeaders?: Config['sourceHeaders'];
  /** The client certificate and its key, in PEM format. */
  readonly sourceClientCert?: string | undefined;
  readonly sourceClientKey?: string | undefined;
  /** The proxy variables and `NODE_EXTRA_CA_CERTS`. */
  readonly ambient: Readonly<Record<string, string>>;
}

/**
 * The headers and the certificate that identify the client. They may change while the
 * process is running.
 */
export interface SourceCredentials {
  readonly authorization: string | undefined;
  readonly headers: Config['sourceHeaders'];
  readonly certificate: ClientCertificate | undefined;
}

export interface SourceDeps {
  /** The request budget that all workers share. */
  readonly rate: RateState;
  readonly bans: BanStore;
  /** Receives a report of every request and wait, for metrics. */
  readonly observer?: SourceObserver;
  /** Logs each retry and its reason. */
  readonly log?: Pick<Log, 'warn'>;
  readonly clock?: Clock;
  /**
   * Whether to accept gzip, which saves bandwidth at little CPU cost for the source.
   * Tests turn it off.
   */
  readonly acceptGzip?: boolean;
  readonly limits?: SourceLimits | undefined;
  /** The credentials. By default these are the configured ones, which never change. */
  readonly credentials?: RotatingSecret<SourceCredentials> | undefined;
}

export interface Source extends AsyncDisposable {
  readonly lists: ListSource;
  readonly ledger: LedgerSource;
  /** The proof log of a source that is itself a mirror. */
  readonly proof: ProofSource;
  /**
   * Returns the latency of list responses.
   * @returns undefined before the first successful response for a list
   */
  listLatency(): ListLatency | undefined;
  /** Aborts the requests in flight. */
  close(): Promise<void>;
}

/**
 * Opens the source. No connection is made before the first request.
 * @throws UsageError if SOURCE_URL is missing, or if a proxy's URL or the CA file
 *   cannot be used
 */
export function openSource(config: SourceConfig, deps: SourceDeps): Source {
  if (config.sourceUrl === undefined) {
    throw new UsageError([
      'SOURCE_URL: not given, and this command queries the source; give ' +
        'an http:// or https:// URL',
    ]);
  }
  const { baseUrl, authorization } = splitUrl(config.sourceUrl);
  const { limits, clock = SYSTEM_CLOCK, acceptGzip = true, log } = deps;
  const credentials = deps.credentials ?? fixedCredentials(config);
  const client = openHttpClient(config.ambient, {
    connectMs: limits?.connectMs,
    readCertificate: () => credentials.current.certificate,
  });
  const observer = new LatencyObserver(deps.observer);
  const rate = new RateLimiter(config.sourceRate, { ...deps, clock, observer });
  const get = openHttp(client, () => ({
    ...authorizationOf(credentials.current.authorization ?? authorization),
    ...credentials.current.headers,
    accept: 'application/json',
    // A cache in between could serve old rows.
    'cache-control': 'no-cache',
    'accept-encoding': acceptGzip ? 'gzip' : 'identity',
    'user-agent': `ledger-mirror/${version()}`,
  }));
  const requester = new SourceRequester({
    get,
    credentials,
    rate,
    clock,
    observer,
    log,
  });
  const access = { requester, baseUrl, limits };
  return {
    lists: openListSource(access),
    ledger: openLedgerSource(access, config),
    proof: openProofSource(access),
    listLatency: () => observer.listLatency(),
    close: () => client.close(),
    [Symbol.asyncDispose]: () => client.close(),
  };
}

function fixedCredentials(
  config: SourceConfig,
): RotatingSecret<SourceCredentials> {
  const { sourceAuthorization: authorization, sourceHeaders: headers } = config;
  const { sourceClientCert: cert, sourceClientKey: key } = config;
  return new RotatingSecret<SourceCredentials>(
    { authorization, headers, certificate: certificateOf(cert, key) },
    { name: 'the credentials', read: undefined },
  );
}

function authorizationOf(value: string | undefined): Record<string, string> {
  return value === undefined ? {} : { authorization: value };
}

/** Splits the URL. Its credentials are sent only as a header and appear nowhere else. */
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
