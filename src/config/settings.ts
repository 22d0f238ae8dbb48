/**
 * The table that declares every setting: its name, default, accepted values and meaning.
 * `--help`, the table in docs/configuration.md and the console's configuration page are
 * generated from it or tested against it.
 */
import * as form from './value-forms.ts';

interface Declared<Value> extends form.Form<Value> {
  /** The default, parsed exactly as if a user had written it. */
  readonly fallback?: string;
  readonly secret?: boolean;
  readonly help: string;
}

/** Declares a setting that has no default. */
function optional<Value>(given: form.Form<Value>, help: string) {
  return { ...given, help };
}

/** Declares an optional setting that is never shown or stored. */
function secret<Value>(given: form.Form<Value>, help: string) {
  return { ...given, help, secret: true };
}

function preset<Value>(
  fallback: string,
  given: form.Form<Value>,
  help: string,
) {
  return { ...given, help, fallback };
}

const TABLE = {
  SOURCE_URL: optional(
    form.serviceUrl,
    'the query service to mirror; required by every command that queries the source',
  ),
  SOURCE_AUTHORIZATION: secret(
    form.text('an Authorization header value', /^[\x20-\x7e]+$/),
    'sent as the Authorization header with every request to the source',
  ),
  SOURCE_HEADERS: secret(
    form.httpHeaders,
    'further headers sent with every request to the source, for example for a gateway',
  ),
  SOURCE_CLIENT_CERT: secret(
    form.certificate,
    'the client certificate presented to the source',
  ),
  SOURCE_CLIENT_KEY: secret(
    form.privateKey,
    'the private key of that certificate',
  ),
  SOURCE_PAGE_SIZE: preset(
    '1000',
    form.integer(2, 50_000),
    'rows requested per page; 2 and 3 are treated as 4',
  ),
  SOURCE_RATE: preset(
    '10',
    form.integer(1, 100_000),
    'requests per second to the source, across all workers',
  ),
  SOURCE_EXPORT_CONCURRENCY: preset(
    '1',
    form.integer(1, 64),
    'concurrent exports, across all workers',
  ),
  SOURCE_EXPORT_PATH: preset(
    '/api/v2/ledgerentry/export',
    form.text('a path that begins with /', /^\/[\w\-./~%]*$/),
    'path of the export endpoint',
  ),
  SOURCE_EXPORT_PARAM_PARTY: preset(
    'partyId',
    form.parameter,
    'query parameter for the party',
  ),
  SOURCE_EXPORT_PARAM_ASSET: preset(
    'assetId',
    form.parameter,
    'query parameter for the asset',
  ),
  SOURCE_EXPORT_PARAM_FROM: preset(
    'dateRange.startTimestamp',
    form.parameter,
    'query parameter for the start',
  ),
  SOURCE_EXPORT_PARAM_TO: preset(
    'dateRange.endTimestamp',
    form.parameter,
    'query parameter for the end (exclusive)',
  ),
  SOURCE_EXPORT_TIME: preset(
    'ns',
    form.oneOf('ns', 'ms', 's', 'rfc3339'),
    'time format of the two parameters above',
  ),
  SOURCE_ASSETS: optional(
    form.idList,
    'the assets to request, if the source requires an asset',
  ),
  DATABASE_URL: secret(
    form.postgresUrl,
    'the warehouse; unset: Postgres embedded in DATA_DIR',
  ),
  DATABASE_CONNECTIONS: preset(
    '17',
    form.integer(12, 1_000),
    'maximum number of database connections per process; an idle `up` has at most 10',
  ),
  REDIS_URL: secret(
    form.url('a redis:// or rediss:// URL', 'redis:', 'rediss:'),
    'queues and resume state; unset: both in Postgres',
  ),
  OBJECT_STORE_URL: optional(
    form.objectStoreUrl,
    'where exports and the lake are stored; unset: DATA_DIR/objects',
  ),
  OBJECT_STORE_UMASK: optional(
    form.umask,
    'who besides this user may read the files if OBJECT_STORE_URL is a folder: ' +
      '027 its group, 022 everybody; unset: nobody',
  ),
  DATA_DIR: preset(
    './data',
    form.text('a directory', /^[^\0]+$/),
    'where the embedded Postgres and local objects are stored',
  ),
  SCHEDULE: preset('0 2 * * *', form.cron, 'when the nightly run starts'),
  SCHEDULE_TZ: preset('UTC', form.timeZone, 'the time zone of SCHEDULE'),
  FIRST_RUN: preset(
    'now',
    form.oneOf('now', 'scheduled'),
    'when a new mirror starts its first nightly run',
  ),
  AUDIT_SCHEDULE: preset(
    '0 4 * * 0',
    form.cron,
    'when both lists are audited, whatever their length: every page is read again',
  ),
  NIGHTLY_PARTIES: preset(
    'all',
    form.partySelection,
    'whose ledger entries the nightly run exports',
  ),
  NIGHTLY_EXPORTS_MAX: optional(
    form.integer(0, 2 ** 31, 'a whole number from 0'),
    'maximum number of exports per night; unset: no limit',
  ),
  SOURCE_RETENTION: preset(
    '90d',
    form.duration('1d', '36500d'),
    'how long the source is certain to keep ledger entries; older entries are not ' +
      'audited, and prove nothing',
  ),
  NIGHTLY_AUDIT_WITHIN: preset(
    '30d',
    form.duration('1d', '36500d'),
    'how long a closed segment may go without being requested again and compared; ' +
      'each nightly run requests its share, starting with those checked longest ago',
  ),
  NIGHTLY_AUDIT_SHARE: optional(
    form.percentage,
    'share of the closed segments that each nightly run requests again and ' +
      'compares, instead of the share that follows from NIGHTLY_AUDIT_WITHIN',
  ),
  NIGHTLY_LIST_ROWS: preset(
    '1000000',
    form.integer(0, 2 ** 31, 'a whole number from 0'),
    'a list of up to this many rows is read in full each night; for a longer list, ' +
      'only new rows are read each night, and all rows at AUDIT_SCHEDULE',
  ),
  NIGHTLY_WINDOW: optional(
    {
      ...form.duration('1m', '7d'),
      accepted: 'a duration from 1m to 7d, such as 6h',
    },
    'how long a nightly run requests ledgers; unset: until an hour before the ' +
      'next scheduled time',
  ),
  // The retention must be at least two weeks: the leftovers of a killed export are
  // removed after one week, which is only possible while its run is still recorded.
  HISTORY_RETENTION: preset(
    '90d',
    form.duration('14d', '3650d'),
    'how long finished runs, and the requests of each nightly run, are kept',
  ),
  EXPORT_COMPRESSION: preset(
    'zstd',
    form.oneOf('zstd', 'gzip', 'none'),
    'how exported objects are stored',
  ),
  EXPORT_SEGMENT_MAX: preset(
    '1GiB',
    form.byteSize('64KiB', '64GiB'),
    'size limit of the uncompressed CSV in one object; a larger export is split by time',
  ),
  EXPORT_COLUMNS: optional(
    form.columnNames,
    "names of our columns in the source's CSV; unset: the public service's names",
  ),
  EXPORT_DELIMITER: preset(
    'comma',
    form.delimiter,
    "field separator of the source's CSV",
  ),
  EXPORT_TIME_FORMAT: preset(
    'rfc3339',
    form.oneOf('rfc3339', 'utc', 's', 'ms', 'us', 'ns'),
    "time format of the source's CSV: with a zone, in UTC without a zone, or counted since 1970",
  ),
  EXPORT_ID_FORMAT: preset(
    'hex',
    form.oneOf('hex', '0x', 'base64'),
    "id format of the source's CSV: hex, hex with 0x in front, or base64",
  ),
  LAKE_RETENTION: preset(
    '7d',
    form.duration('1s', '3650d'),
    'how long replaced lake files are kept',
  ),
  PROOF_KEY: secret(
    form.signerKey,
    'signs the proof log; unset: a key is created at first use',
  ),
  PROOF_NAME: optional(
    form.text('a name without spaces and without +', /^[^\s+]{1,200}$/),
    'name of the proof log, set when its key is created; unset: ledger-mirror/ and an id',
  ),
  SOURCE_PROOF_KEY: optional(
    form.text(
      '<name>+<hash>+<key>, as printed by `status` on the source',
      /^[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]+={0,2}$/,
    ),
    'the key that signs the statements of a source that is itself a mirror; unset: the first key that it presented',
  ),
  NOTIFY_URL: secret(
    form.httpUrl,
    'where the start and end of runs are posted as JSON',
  ),
  NOTIFY_ON: preset(
    'nightly,failed,recovered',
    form.notices,
    '`nightly`, `sync`, …: every event of this kind of run; `failed`, ' +
      '`recovered`, …: this event of any run',
  ),
  NOTIFY_SECRET: secret(
    form.text(
      'whsec_ and 24 to 64 bytes in base64',
      /^whsec_[A-Za-z0-9+/]{32,88}={0,2}$/,
    ),
    'signs what is posted, according to Standard Webhooks',
  ),
  NOTIFY_FORMAT: preset(
    'json',
    form.oneOf('json', 'slack'),
    'what is posted: the full report of a run, or one line for a chat',
  ),
  ASSETS_FILE: optional(
    form.assetsFile,
    'decimals and symbols of assets, with which the console, `query` and views show ' +
      'amounts; unset: amounts in the smallest unit',
  ),
  API_HOST: preset(
    '127.0.0.1',
    form.text('a host name or address', /^[\w.:-]+$/),
    'where the API listens',
  ),
  API_PORT: preset('8080', form.port, 'the port of the API; 0: any free port'),
  API_TOKEN: secret(
    form.token,
    'the token for the read API and the console; required beyond loopback',
  ),
  API_READ_TOKEN: secret(
    {
      ...form.token,
      accepted: `${form.token.accepted}; not the same as API_TOKEN`,
    },
    'a second token, which can read all pages and files and query the lake, but not start or cancel runs',
  ),
  API_HOSTS: optional(
    form.hostNames,
    'further host names at which the API can be reached',
  ),
  API_ORIGINS: optional(
    form.origins,
    "origins whose pages may read this API's copy of the source's interface in a browser; unset: none",
  ),
  API_BASE_PATH: optional(
    form.basePath,
    'the proxy path under which the console and the API are reached',
  ),
  API_DOWNLOADS_PER_HOUR: preset(
    '100GiB',
    form.byteSize('1MiB', '1048576GiB'),
    'how much uncompressed CSV the downloads from one process may send per hour',
  ),
  WORKER_HEALTH_PORT: optional(
    form.port,
    "port of a worker's health endpoint; unset: none",
  ),
  LOG_LEVEL: preset('info', form.logLevel, 'the lowest level that is logged'),
} satisfies Readonly<Record<string, Declared<unknown>>>;

/** The key of a setting in the configuration: `SOURCE_URL` becomes `sourceUrl`. */
type KeyOf<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${Lowercase<First>}${Capitalize<KeyOf<Rest>>}`
  : Lowercase<Name>;

function keyOf<Name extends string>(name: Name): KeyOf<Name> {
  return name
    .toLowerCase()
    .replaceAll(/_./g, ([, letter = '']) =>
      letter.toUpperCase(),
    ) as KeyOf<Name>;
}

type Table = typeof TABLE;
type ValueOf<Name extends keyof Table> = NonNullable<
  ReturnType<Table[Name]['parse']>
>;

/** The parsed settings. Those with a default are always defined. */
export type Settings = {
  readonly [Name in keyof Table as KeyOf<Name>]: Table[Name] extends {
    fallback: string;
  }
    ? ValueOf<Name>
    : ValueOf<Name> | undefined;
};
export type SettingKey = keyof Settings;

export interface Setting extends Declared<unknown> {
  readonly name: string;
  readonly key: SettingKey;
}

export const SETTINGS = Object.entries<Declared<unknown>>(TABLE).map(
  ([name, declared]): Setting => ({
    ...declared,
    name,
    key: keyOf(name as keyof Table),
  }),
);
