/**
 * The declared table of every setting: name, default, what is accepted, what it means. `--help`, the
 * The table in docs/configuration.md and the console's configuration page are made from it or tested against it.
 */
import { hostNames, TOKEN, token } from './access-forms.ts';
import {
  byteSize,
  columnNames,
  cron,
  DAY_MS,
  delimiter,
  duration,
  ESCAPED,
  idList,
  NOTICE_WORDS,
  integer,
  MINUTE_MS,
  objectStoreUrl,
  oneOf,
  partySelection,
  percentage,
  text,
  timeZone,
  url,
  wordsOf,
} from './value-forms.ts';

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

function setting<Value>(declared: Setting<Value>): Setting<Value> {
  return declared;
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
  sourceRetention: setting({
    name: 'SOURCE_RETENTION',
    fallback: '90d',
    accepted: 'a duration from 1d to 36500d',
    help: 'how long the source keeps ledger entries for certain: what is older is not audited, and proves nothing',
    parse: duration(86_400_000, 36_500 * 86_400_000),
  }),
  nightlyAuditShare: setting({
    name: 'NIGHTLY_AUDIT_SHARE',
    fallback: '1%',
    accepted: 'a percentage from 0% to 100%, such as 0.5%',
    help: 'closed segments of ledgers that a nightly run asks for once more, the oldest check first, and compares',
    parse: percentage,
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
    help: 'how long finished runs, what each nightly run asked, and reports are kept',
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
  exportColumns: setting({
    name: 'EXPORT_COLUMNS',
    accepted:
      'our name=its name, separated by commas; =none for a column (but quantity) that it does not have',
    help: "what the source's CSV calls our columns; unset: as the public service calls them",
    parse: columnNames,
  }),
  exportDelimiter: setting({
    name: 'EXPORT_DELIMITER',
    fallback: 'comma',
    accepted: 'comma, semicolon, tab or pipe',
    help: 'what parts the fields of its CSV',
    parse: delimiter,
  }),
  exportTimeFormat: setting({
    name: 'EXPORT_TIME_FORMAT',
    fallback: 'rfc3339',
    accepted: 'rfc3339, utc, s, ms, us or ns',
    help: 'how its CSV writes times: with a zone, in UTC without one, or counted since 1970',
    parse: oneOf('rfc3339', 'utc', 's', 'ms', 'us', 'ns'),
  }),
  exportIdFormat: setting({
    name: 'EXPORT_ID_FORMAT',
    fallback: 'hex',
    accepted: 'hex, 0x or base64',
    help: 'how its CSV writes ids: as hex, with 0x in front, or in base64',
    parse: oneOf('hex', '0x', 'base64'),
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
    help: 'where the start and end of runs is posted as JSON',
    parse: url(['http:', 'https:']),
  }),
  notifyOn: setting({
    name: 'NOTIFY_ON',
    fallback: 'nightly,failed,recovered',
    accepted: `all, or of: ${NOTICE_WORDS.slice(1).join(', ')}`,
    help: 'of which runs it is told: of kinds, whatever happens, and of what happens, to any run',
    parse: wordsOf(NOTICE_WORDS),
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
    help: 'what is posted: the whole report of a run, or a line for a chat',
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
  | 'sourceRetention'
  | 'nightlyAuditShare'
  | 'nightlyParties'
  | 'exportCompression'
  | 'exportSegmentMax'
  | 'exportDelimiter'
  | 'exportTimeFormat'
  | 'exportIdFormat'
  | 'lakeRetention'
  | 'notifyOn'
  | 'notifyFormat'
  | 'apiHost'
  | 'apiPort'
  | 'logLevel';

/** The settings, parsed: those with a default are always there. */
export type Settings = { readonly [Key in Required]: Parsed<(typeof SETTINGS)[Key]> } & {
  readonly [Key in Exclude<SettingKey, Required>]: Parsed<(typeof SETTINGS)[Key]> | undefined;
};
