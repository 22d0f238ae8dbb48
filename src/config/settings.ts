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
    'the query service to mirror; needed by what asks the source',
  ),
  SOURCE_AUTHORIZATION: secret(
    form.text('an Authorization header value', /^[\x20-\x7e]+$/),
    'sent as the Authorization header of every request to the source',
  ),
  SOURCE_HEADERS: secret(
    form.httpHeaders,
    'further headers of every request to the source, as a gateway before it may want them',
  ),
  SOURCE_CLIENT_CERT: secret(
    form.certificate,
    'the certificate by which this client shows the source who it is',
  ),
  SOURCE_CLIENT_KEY: secret(
    form.privateKey,
    'the private key of that certificate',
  ),
  SOURCE_PAGE_SIZE: preset(
    '1000',
    form.integer(2, 50_000),
    'rows asked for in one page; 2 and 3 count as 4',
  ),
  SOURCE_RATE: preset(
    '10',
    form.integer(1, 100_000),
    'requests a second to the source, over all workers',
  ),
  SOURCE_EXPORT_CONCURRENCY: preset(
    '1',
    form.integer(1, 64),
    'exports at once, over all workers',
  ),
  SOURCE_EXPORT_PATH: preset(
    '/api/v2/ledgerentry/export',
    form.text('a path that begins with /', /^\/[\w\-./~%]*$/),
    'path of the export',
  ),
  SOURCE_EXPORT_PARAM_PARTY: preset(
    'partyId',
    form.parameter,
    'its parameter for the party',
  ),
  SOURCE_EXPORT_PARAM_ASSET: preset(
    'assetId',
    form.parameter,
    'its parameter for the asset',
  ),
  SOURCE_EXPORT_PARAM_FROM: preset(
    'dateRange.startTimestamp',
    form.parameter,
    'its parameter for the start',
  ),
  SOURCE_EXPORT_PARAM_TO: preset(
    'dateRange.endTimestamp',
    form.parameter,
    'its parameter for the end (exclusive)',
  ),
  SOURCE_EXPORT_TIME: preset(
    'ns',
    form.oneOf('ns', 'ms', 's', 'rfc3339'),
    'time format of the two parameters above',
  ),
  SOURCE_ASSETS: optional(
    form.idList,
    'the assets to request, if the source requires one',
  ),
  DATABASE_URL: secret(
    form.postgresUrl,
    'the warehouse; unset: Postgres embedded in DATA_DIR',
  ),
  DATABASE_CONNECTIONS: preset(
    '17',
    form.integer(12, 1_000),
    'connections to the database that one process opens at most; an idle `up` has at most 10',
  ),
  REDIS_URL: secret(
    form.url('a redis:// or rediss:// URL', 'redis:', 'rediss:'),
    'queues and resume state; unset: both in Postgres',
  ),
  OBJECT_STORE_URL: optional(
    form.objectStoreUrl,
    'where exports and the lake go; unset: DATA_DIR/objects',
  ),
  OBJECT_STORE_UMASK: optional(
    form.umask,
    'who may read the files of a folder in OBJECT_STORE_URL beside this user: 027 its group, ' +
      '022 everybody; unset: nobody',
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
    'when both lists are audited, however long they are: every page again',
  ),
  NIGHTLY_PARTIES: preset(
    'all',
    form.partySelection,
    'whose ledger entries the nightly run exports',
  ),
  NIGHTLY_EXPORTS_MAX: optional(
    form.integer(0, 2 ** 31, 'a whole number from 0'),
    'exports a night at most; unset: no limit',
  ),
  SOURCE_RETENTION: preset(
    '90d',
    form.duration('1d', '36500d'),
    'how long the source is sure to keep ledger entries; older ones are not ' +
      'audited, and prove nothing',
  ),
  NIGHTLY_AUDIT_WITHIN: preset(
    '30d',
    form.duration('1d', '36500d'),
    'how long a closed segment of a ledger goes without being asked for once more ' +
      'and compared; each nightly run asks for its share, the oldest check first',
  ),
  NIGHTLY_AUDIT_SHARE: optional(
    form.percentage,
    'share of the closed segments that each nightly run fetches again and ' +
      'compares, instead of the one that follows from NIGHTLY_AUDIT_WITHIN',
  ),
  NIGHTLY_LIST_ROWS: preset(
    '1000000',
    form.integer(0, 2 ** 31, 'a whole number from 0'),
    'a list of at most so many rows is read whole each night; a longer one at ' +
      'AUDIT_SCHEDULE, and each night from where it ended',
  ),
  NIGHTLY_WINDOW: optional(
    {
      ...form.duration('1m', '7d'),
      accepted: 'a duration from 1m to 7d, such as 6h',
    },
    'how long a nightly run asks for ledgers; unset: until an hour before the ' +
      'next scheduled time',
  ),
  // The retention must be at least two weeks: the leftovers of a killed export are
  // removed after one week, which is only possible while its run is still recorded.
  HISTORY_RETENTION: preset(
    '90d',
    form.duration('14d', '3650d'),
    'how long finished runs, and what each nightly run asked, are kept',
  ),
  EXPORT_COMPRESSION: preset(
    'zstd',
    form.oneOf('zstd', 'gzip', 'none'),
    'how exported objects are stored',
  ),
  EXPORT_SEGMENT_MAX: preset(
    '1GiB',
    form.byteSize('64KiB', '64GiB'),
    'largest CSV (uncompressed) of one object; a larger export is split by time',
  ),
  EXPORT_COLUMNS: optional(
    form.columnNames,
    "what the source's CSV calls our columns; unset: as the public service calls them",
  ),
  EXPORT_DELIMITER: preset(
    'comma',
    form.delimiter,
    "field separator of the source's CSV",
  ),
  EXPORT_TIME_FORMAT: preset(
    'rfc3339',
    form.oneOf('rfc3339', 'utc', 's', 'ms', 'us', 'ns'),
    'how its CSV writes times: with a zone, in UTC without one, or counted since 1970',
  ),
  EXPORT_ID_FORMAT: preset(
    'hex',
    form.oneOf('hex', '0x', 'base64'),
    'how its CSV writes ids: as hex, with 0x in front, or in base64',
  ),
  LAKE_RETENTION: preset(
    '7d',
    form.duration('1s', '3650d'),
    'how long replaced files of the lake are kept',
  ),
  PROOF_KEY: secret(
    form.signerKey,
    'signs the log of nights; unset: a key is made at first use',
  ),
  PROOF_NAME: optional(
    form.text('a name without spaces and without +', /^[^\s+]{1,200}$/),
    'names the log of nights when its key is made; unset: ledger-mirror/ and an id',
  ),
  SOURCE_PROOF_KEY: optional(
    form.text(
      '<name>+<hash>+<key>, as `status` of the source prints it',
      /^[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]+={0,2}$/,
    ),
    'the key that signs the statements of a source that is a mirror; unset: the one that it showed first',
  ),
  NOTIFY_URL: secret(
    form.httpUrl,
    'where the start and end of runs is posted as JSON',
  ),
  NOTIFY_ON: preset(
    'nightly,failed,recovered',
    form.notices,
    '`nightly`, `sync`, …: every event of that kind of run; `failed`, ' +
      '`recovered`, …: that event of every run',
  ),
  NOTIFY_SECRET: secret(
    form.text(
      'whsec_ and 24 to 64 bytes in base64',
      /^whsec_[A-Za-z0-9+/]{32,88}={0,2}$/,
    ),
    'signs what is posted, as Standard Webhooks say',
  ),
  NOTIFY_FORMAT: preset(
    'json',
    form.oneOf('json', 'slack'),
    'what is posted: the whole report of a run, or a line for a chat',
  ),
  API_HOST: preset(
    '127.0.0.1',
    form.text('a host name or address', /^[\w.:-]+$/),
    'where the API listens',
  ),
  API_PORT: preset('8080', form.port, 'its port; 0: a free one'),
  API_TOKEN: secret(
    form.token,
    'what the read API and the console ask for; needed beyond loopback',
  ),
  API_READ_TOKEN: secret(
    {
      ...form.token,
      accepted: `${form.token.accepted}; another than API_TOKEN`,
    },
    'a second token, which may read everything, and start or cancel nothing',
  ),
  API_HOSTS: optional(
    form.hostNames,
    'further host names under which the API may be addressed',
  ),
  API_ORIGINS: optional(
    form.origins,
    "origins whose pages may read the source's own interface in a browser; unset: none",
  ),
  API_BASE_PATH: optional(
    form.basePath,
    'the path of a proxy below which the console and the API are reached',
  ),
  API_DOWNLOADS_PER_HOUR: preset(
    '100GiB',
    form.byteSize('1MiB', '1048576GiB'),
    'plain CSV that the downloads of a process may send in an hour',
  ),
  WORKER_HEALTH_PORT: optional(form.port, "a worker's health; unset: none"),
  LOG_LEVEL: preset('info', form.logLevel, 'what is logged'),
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
