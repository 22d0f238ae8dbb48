/**
 * The declared table of every setting: name, default, what is accepted, what it means. `--help`, the
 * The table in docs/configuration.md and the console's configuration page are made from it or tested against it.
 */
import { CronExpressionParser } from 'cron-parser';
import { canonicalId } from '../core/ids.ts';
import { hostNames, TOKEN, token } from './access-forms.ts';

export interface Setting<Value> {
  readonly name: string;
  /** Read exactly as if a user had written it. */
  readonly fallback?: string;
  readonly secret?: boolean;
  /** What is accepted, as it stands in an error line. */
  readonly accepted: string;
  readonly help: string;
  /** @returns undefined where the text is not accepted */
  readonly parse: (text: string) => Value | undefined;
}

/** Which parties the nightly run exports. A file is read when the configuration is. */
export type PartySelection =
  | { kind: 'all' }
  | { kind: 'list'; ids: readonly string[] }
  | { kind: 'file'; path: string };

function setting<Value>(declared: Setting<Value>): Setting<Value> {
  return declared;
}

/** What must be escaped in a URL so that every reader of it takes the same user and password. */
const ESCAPED = '(a % in its password is written %25)';

function url(protocols: readonly string[]): (text: string) => URL | undefined {
  return (text) => {
    const parsed = URL.canParse(text) ? new URL(text) : undefined;
    if (parsed === undefined || !protocols.includes(parsed.protocol)) return undefined;
    return isEscaped(parsed.username) && isEscaped(parsed.password) ? parsed : undefined;
  };
}

function isEscaped(text: string): boolean {
  return !/%(?![0-9a-f]{2})/i.test(text);
}

function integer(min: number, max: number): (text: string) => number | undefined {
  return (text) => {
    const value = /^\d{1,10}$/.test(text) ? Number(text) : undefined;
    return value !== undefined && value >= min && value <= max ? value : undefined;
  };
}

function oneOf<const Word extends string>(...words: readonly Word[]): (text: string) => Word | undefined {
  return (text) => words.find((word) => word === text);
}

function text(pattern: RegExp): (given: string) => string | undefined {
  return (given) => (pattern.test(given) ? given : undefined);
}

const BYTE_UNITS: Record<string, number> = {
  B: 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
};

function byteSize(minBytes: number, maxBytes: number): (given: string) => number | undefined {
  return (given) => {
    const match = /^(\d{1,12})(B|KiB|MiB|GiB|KB|MB|GB)?$/.exec(given);
    if (match?.[1] === undefined) return undefined;
    const bytes = Number(match[1]) * (BYTE_UNITS[match[2] ?? 'B'] ?? 1);
    return bytes >= minBytes && bytes <= maxBytes ? bytes : undefined;
  };
}

function idList(given: string): readonly string[] | undefined {
  const ids = given.split(',').map((part) => canonicalId(part.trim()));
  return ids.every((id) => id !== undefined) ? [...new Set(ids)] : undefined;
}

function partySelection(given: string): PartySelection | undefined {
  if (given === 'all') return { kind: 'all' };
  if (given.startsWith('@')) return given.length > 1 ? { kind: 'file', path: given.slice(1) } : undefined;
  const ids = idList(given);
  return ids === undefined ? undefined : { kind: 'list', ids };
}

function cron(given: string): string | undefined {
  try {
    CronExpressionParser.parse(given);
    return given;
  } catch {
    return undefined;
  }
}

function timeZone(given: string): string | undefined {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: given }).resolvedOptions().timeZone === ''
      ? undefined
      : given;
  } catch {
    return undefined;
  }
}

function objectStoreUrl(given: string): URL | undefined {
  const parsed = url(['file:', 's3:'])(given);
  if (parsed === undefined) return undefined;
  if (parsed.protocol === 'file:')
    return parsed.host === '' && parsed.pathname.length > 1 ? parsed : undefined;
  const known = ['region', 'endpoint'];
  const isKnown = [...parsed.searchParams.keys()].every((key) => known.includes(key));
  const endpoint = parsed.searchParams.get('endpoint');
  const isUsable = endpoint === null || url(['http:', 'https:'])(endpoint) !== undefined;
  return parsed.host !== '' && isKnown && isUsable ? parsed : undefined;
}

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const DURATION_UNITS: Readonly<Record<string, number>> = {
  s: 1_000,
  m: MINUTE_MS,
  h: 60 * MINUTE_MS,
  d: DAY_MS,
};

/** @returns milliseconds */
function duration(minMs: number, maxMs: number): (given: string) => number | undefined {
  return (given) => {
    const match = /^(\d{1,9})(s|m|h|d)$/.exec(given);
    if (match?.[1] === undefined) return undefined;
    const ms = Number(match[1]) * (DURATION_UNITS[match[2] ?? ''] ?? Number.NaN);
    return ms >= minMs && ms <= maxMs ? ms : undefined;
  };
}

const HTTP_URL = `an http:// or https:// URL ${ESCAPED}`;
const PARAMETER = 'a query parameter name';

export const SETTINGS = {
  sourceUrl: setting({
    name: 'SOURCE_URL',
    accepted: HTTP_URL,
    help: 'the query service to mirror; needed by what asks the source',
    parse: url(['http:', 'https:']),
  }),
  sourceAuthorization: setting({
    name: 'SOURCE_AUTHORIZATION',
    secret: true,
    accepted: 'an Authorization header value',
    help: 'sent as the Authorization header of every request to the source',
    parse: text(/^[\x20-\x7e]+$/),
  }),
  sourcePageSize: setting({
    name: 'SOURCE_PAGE_SIZE',
    fallback: '1000',
    accepted: 'a whole number from 2 to 50000',
    help: 'rows asked for in one page (raised to 4 where less)',
    parse: integer(2, 50_000),
  }),
  sourceRate: setting({
    name: 'SOURCE_RATE',
    fallback: '10',
    accepted: 'a whole number from 1 to 100000',
    help: 'requests a second to the source, over all workers',
    parse: integer(1, 100_000),
  }),
  sourceExportConcurrency: setting({
    name: 'SOURCE_EXPORT_CONCURRENCY',
    fallback: '1',
    accepted: 'a whole number from 1 to 64',
    help: 'exports at once, over all workers',
    parse: integer(1, 64),
  }),
  sourceExportPath: setting({
    name: 'SOURCE_EXPORT_PATH',
    fallback: '/api/v2/ledgerentry/export',
    accepted: 'a path that begins with /',
    help: 'path of the export',
    parse: text(/^\/[\w\-./~%]*$/),
  }),
  sourceExportParamParty: setting({
    name: 'SOURCE_EXPORT_PARAM_PARTY',
    fallback: 'partyId',
    accepted: PARAMETER,
    help: 'its parameter for the party',
    parse: text(/^[\w.\-[\]]+$/),
  }),
  sourceExportParamAsset: setting({
    name: 'SOURCE_EXPORT_PARAM_ASSET',
    fallback: 'assetId',
    accepted: PARAMETER,
    help: 'its parameter for the asset',
    parse: text(/^[\w.\-[\]]+$/),
  }),
  sourceExportParamFrom: setting({
    name: 'SOURCE_EXPORT_PARAM_FROM',
    fallback: 'dateRange.startTimestamp',
    accepted: PARAMETER,
    help: 'its parameter for the first instant',
    parse: text(/^[\w.\-[\]]+$/),
  }),
  sourceExportParamTo: setting({
    name: 'SOURCE_EXPORT_PARAM_TO',
    fallback: 'dateRange.endTimestamp',
    accepted: PARAMETER,
    help: 'its parameter for the end (exclusive)',
    parse: text(/^[\w.\-[\]]+$/),
  }),
  sourceExportTime: setting({
    name: 'SOURCE_EXPORT_TIME',
    fallback: 'ns',
    accepted: 'ns, ms, s or rfc3339',
    help: 'how these two write a time',
    parse: oneOf('ns', 'ms', 's', 'rfc3339'),
  }),
  sourceAssets: setting({
    name: 'SOURCE_ASSETS',
    accepted: 'asset ids (64 hex digits), separated by commas',
    help: 'the assets to ask for, where the source demands one',
    parse: idList,
  }),
  databaseUrl: setting({
    name: 'DATABASE_URL',
    secret: true,
    accepted: `a postgres:// or postgresql:// URL ${ESCAPED}`,
    help: 'the warehouse; unset: Postgres embedded in DATA_DIR',
    parse: url(['postgres:', 'postgresql:']),
  }),
  redisUrl: setting({
    name: 'REDIS_URL',
    secret: true,
    accepted: `a redis:// or rediss:// URL ${ESCAPED}`,
    help: 'queues and resume state; unset: both in Postgres',
    parse: url(['redis:', 'rediss:']),
  }),
  objectStoreUrl: setting({
    name: 'OBJECT_STORE_URL',
    accepted: 'file:///dir or s3://bucket/prefix?region=…&endpoint=…',
    help: 'where exports and the lake go; unset: DATA_DIR/objects',
    parse: objectStoreUrl,
  }),
  dataDir: setting({
    name: 'DATA_DIR',
    fallback: './data',
    accepted: 'a directory',
    help: 'where the embedded parts keep theirs',
    parse: text(/^[^\0]+$/),
  }),
  schedule: setting({
    name: 'SCHEDULE',
    fallback: '0 2 * * *',
    accepted: 'a cron expression',
    help: 'when the nightly run starts',
    parse: cron,
  }),
  scheduleTz: setting({
    name: 'SCHEDULE_TZ',
    fallback: 'UTC',
    accepted: 'an IANA time zone',
    help: 'the time zone of SCHEDULE',
    parse: timeZone,
  }),
  firstRun: setting({
    name: 'FIRST_RUN',
    fallback: 'now',
    accepted: 'now or scheduled',
    help: 'when a mirror that has had no nightly run starts its first',
    parse: oneOf('now', 'scheduled'),
  }),
  auditSchedule: setting({
    name: 'AUDIT_SCHEDULE',
    fallback: '0 4 * * 0',
    accepted: 'a cron expression',
    help: 'when both lists are audited: every page again',
    parse: cron,
  }),
  nightlyParties: setting({
    name: 'NIGHTLY_PARTIES',
    fallback: 'all',
    accepted: 'all, party ids separated by commas, or @file',
    help: 'whose ledger entries the nightly run exports',
    parse: partySelection,
  }),
  nightlyExportsMax: setting({
    name: 'NIGHTLY_EXPORTS_MAX',
    accepted: 'a whole number from 0',
    help: 'exports a night at most; unset: no limit',
    parse: integer(0, 2 ** 31),
  }),
  nightlyWindow: setting({
    name: 'NIGHTLY_WINDOW',
    accepted: 'a duration from 1m to 7d, such as 6h',
    help: 'how long a nightly run asks for ledgers; unset: until an hour before the next scheduled time',
    parse: duration(MINUTE_MS, 7 * DAY_MS),
  }),
  historyRetention: setting({
    name: 'HISTORY_RETENTION',
    fallback: '90d',
    accepted: 'a duration from 1d to 3650d',
    help: 'how long finished runs, and what each nightly run asked, are kept',
    parse: duration(DAY_MS, 3650 * DAY_MS),
  }),
  exportCompression: setting({
    name: 'EXPORT_COMPRESSION',
    fallback: 'zstd',
    accepted: 'zstd, gzip or none',
    help: 'how exported objects are stored',
    parse: oneOf('zstd', 'gzip', 'none'),
  }),
  exportSegmentMax: setting({
    name: 'EXPORT_SEGMENT_MAX',
    fallback: '1GiB',
    accepted: 'a size from 64KiB to 64GiB',
    help: 'plain CSV in one object; what outgrows it is asked in windows of time',
    parse: byteSize(2 ** 16, 2 ** 36),
  }),
  lakeRetention: setting({
    name: 'LAKE_RETENTION',
    fallback: '7d',
    accepted: 'a duration from 1s to 3650d',
    help: 'how long files that no current version of a lake table names are kept',
    parse: duration(1_000, 3_650 * 86_400_000),
  }),
  notifyUrl: setting({
    name: 'NOTIFY_URL',
    secret: true,
    accepted: HTTP_URL,
    help: 'where the report of a nightly run is posted as JSON',
    parse: url(['http:', 'https:']),
  }),
  notifySecret: setting({
    name: 'NOTIFY_SECRET',
    secret: true,
    accepted: 'whsec_ and 24 to 64 bytes in base64',
    help: 'signs what is posted, as Standard Webhooks say',
    parse: text(/^whsec_[A-Za-z0-9+/]{32,88}={0,2}$/),
  }),
  notifyFormat: setting({
    name: 'NOTIFY_FORMAT',
    fallback: 'json',
    accepted: 'json or slack',
    help: 'what is posted: the whole report, or a line for a chat',
    parse: oneOf('json', 'slack'),
  }),
  apiHost: setting({
    name: 'API_HOST',
    fallback: '127.0.0.1',
    accepted: 'a host name or address',
    help: 'where the read API listens',
    parse: text(/^[\w.:-]+$/),
  }),
  apiPort: setting({
    name: 'API_PORT',
    fallback: '8080',
    accepted: 'a port from 0 to 65535',
    help: 'its port; 0: a free one',
    parse: integer(0, 65_535),
  }),
  apiToken: setting({
    name: 'API_TOKEN',
    secret: true,
    accepted: TOKEN,
    help: 'what the read API and the console ask for; needed beyond loopback',
    parse: token,
  }),
  apiReadToken: setting({
    name: 'API_READ_TOKEN',
    secret: true,
    accepted: `${TOKEN}; another than API_TOKEN`,
    help: 'a second token that reads and orders nothing',
    parse: token,
  }),
  apiHosts: setting({
    name: 'API_HOSTS',
    accepted: 'host names or addresses, separated by commas; *.name for every name below one',
    help: 'the names that requests may be for, beside loopback ones and API_HOST',
    parse: hostNames,
  }),
  workerHealthPort: setting({
    name: 'WORKER_HEALTH_PORT',
    accepted: 'a port from 0 to 65535',
    help: "a worker's health; unset: none",
    parse: integer(0, 65_535),
  }),
  logLevel: setting({
    name: 'LOG_LEVEL',
    fallback: 'info',
    accepted: 'trace, debug, info, warn, error or silent',
    help: 'what is logged',
    parse: oneOf('trace', 'debug', 'info', 'warn', 'error', 'silent'),
  }),
};

export type SettingKey = keyof typeof SETTINGS;
type Parsed<S> = S extends Setting<infer Value> ? Value : never;
type Required =
  | 'sourcePageSize'
  | 'sourceRate'
  | 'sourceExportConcurrency'
  | 'sourceExportPath'
  | 'sourceExportParamParty'
  | 'sourceExportParamAsset'
  | 'sourceExportParamFrom'
  | 'sourceExportParamTo'
  | 'sourceExportTime'
  | 'dataDir'
  | 'schedule'
  | 'scheduleTz'
  | 'firstRun'
  | 'auditSchedule'
  | 'historyRetention'
  | 'nightlyParties'
  | 'exportCompression'
  | 'exportSegmentMax'
  | 'lakeRetention'
  | 'notifyFormat'
  | 'apiHost'
  | 'apiPort'
  | 'logLevel';

/** The settings, parsed: those with a default are always there. */
export type Settings = { readonly [Key in Required]: Parsed<(typeof SETTINGS)[Key]> } & {
  readonly [Key in Exclude<SettingKey, Required>]: Parsed<(typeof SETTINGS)[Key]> | undefined;
};
