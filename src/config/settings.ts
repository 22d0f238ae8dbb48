/**
 * The declared table of every setting: name, default, what is accepted, what it means. `--help`, the table in
 * docs/configuration.md and the console's configuration page are made from it or tested against it.
 */
import { hostNames, token } from './access-forms.ts';
import {
  byteSize,
  columnNames,
  cron,
  delimiter,
  duration,
  type Form,
  httpUrl,
  idList,
  integer,
  notices,
  objectStoreUrl,
  oneOf,
  parameterName,
  partySelection,
  percentage,
  port,
  text,
  timeZone,
  url,
} from './value-forms.ts';

interface Declared<Value> extends Form<Value> {
  /** Read exactly as if a user had written it. */
  readonly fallback?: string;
  readonly secret?: boolean;
  readonly help: string;
}

const TABLE = {
  SOURCE_URL: {
    help: 'the query service to mirror; needed by what asks the source',
    ...httpUrl,
  },
  SOURCE_AUTHORIZATION: {
    secret: true,
    help: 'sent as the Authorization header of every request to the source',
    ...text('an Authorization header value', /^[\x20-\x7e]+$/),
  },
  SOURCE_PAGE_SIZE: {
    fallback: '1000',
    help: 'rows asked for in one page (raised to 4 where less)',
    ...integer(2, 50_000),
  },
  SOURCE_RATE: {
    fallback: '10',
    help: 'requests a second to the source, over all workers',
    ...integer(1, 100_000),
  },
  SOURCE_EXPORT_CONCURRENCY: {
    fallback: '1',
    help: 'exports at once, over all workers',
    ...integer(1, 64),
  },
  SOURCE_EXPORT_PATH: {
    fallback: '/api/v2/ledgerentry/export',
    help: 'path of the export',
    ...text('a path that begins with /', /^\/[\w\-./~%]*$/),
  },
  SOURCE_EXPORT_PARAM_PARTY: {
    fallback: 'partyId',
    help: 'its parameter for the party',
    ...parameterName,
  },
  SOURCE_EXPORT_PARAM_ASSET: {
    fallback: 'assetId',
    help: 'its parameter for the asset',
    ...parameterName,
  },
  SOURCE_EXPORT_PARAM_FROM: {
    fallback: 'dateRange.startTimestamp',
    help: 'its parameter for the first instant',
    ...parameterName,
  },
  SOURCE_EXPORT_PARAM_TO: {
    fallback: 'dateRange.endTimestamp',
    help: 'its parameter for the end (exclusive)',
    ...parameterName,
  },
  SOURCE_EXPORT_TIME: {
    fallback: 'ns',
    help: 'how these two write a time',
    ...oneOf('ns', 'ms', 's', 'rfc3339'),
  },
  SOURCE_ASSETS: {
    help: 'the assets to ask for, where the source demands one',
    ...idList,
  },
  DATABASE_URL: {
    secret: true,
    help: 'the warehouse; unset: Postgres embedded in DATA_DIR',
    ...url('a postgres:// or postgresql:// URL', 'postgres:', 'postgresql:'),
  },
  REDIS_URL: {
    secret: true,
    help: 'queues and resume state; unset: both in Postgres',
    ...url('a redis:// or rediss:// URL', 'redis:', 'rediss:'),
  },
  OBJECT_STORE_URL: {
    help: 'where exports and the lake go; unset: DATA_DIR/objects',
    ...objectStoreUrl,
  },
  DATA_DIR: {
    fallback: './data',
    help: 'where the embedded parts keep theirs',
    ...text('a directory', /^[^\0]+$/),
  },
  SCHEDULE: {
    fallback: '0 2 * * *',
    help: 'when the nightly run starts',
    ...cron,
  },
  SCHEDULE_TZ: {
    fallback: 'UTC',
    help: 'the time zone of SCHEDULE',
    ...timeZone,
  },
  FIRST_RUN: {
    fallback: 'now',
    help: 'when a mirror that has had no nightly run starts its first',
    ...oneOf('now', 'scheduled'),
  },
  AUDIT_SCHEDULE: {
    fallback: '0 4 * * 0',
    help: 'when both lists are audited: every page again',
    ...cron,
  },
  NIGHTLY_PARTIES: {
    fallback: 'all',
    help: 'whose ledger entries the nightly run exports',
    ...partySelection,
  },
  NIGHTLY_EXPORTS_MAX: {
    help: 'exports a night at most; unset: no limit',
    ...integer(0, 2 ** 31),
    accepted: 'a whole number from 0',
  },
  SOURCE_RETENTION: {
    fallback: '90d',
    help: 'how long the source keeps ledger entries for certain: what is older is not audited, and proves nothing',
    ...duration('1d', '36500d'),
  },
  NIGHTLY_AUDIT_SHARE: {
    fallback: '1%',
    help: 'closed segments of ledgers that a nightly run asks for once more, the oldest check first, and compares',
    ...percentage,
  },
  NIGHTLY_WINDOW: {
    help: 'how long a nightly run asks for ledgers; unset: until an hour before the next scheduled time',
    ...duration('1m', '7d'),
    accepted: 'a duration from 1m to 7d, such as 6h',
  },
  HISTORY_RETENTION: {
    fallback: '90d',
    help: 'how long finished runs, and what each nightly run asked, are kept',
    // A leftover of a killed export is removed a week later, and only while its run is known.
    ...duration('14d', '3650d'),
  },
  EXPORT_COMPRESSION: {
    fallback: 'zstd',
    help: 'how exported objects are stored',
    ...oneOf('zstd', 'gzip', 'none'),
  },
  EXPORT_SEGMENT_MAX: {
    fallback: '1GiB',
    help: 'plain CSV in one object; what outgrows it is asked in windows of time',
    ...byteSize('64KiB', '64GiB'),
  },
  EXPORT_COLUMNS: {
    help: "what the source's CSV calls our columns; unset: as the public service calls them",
    ...columnNames,
  },
  EXPORT_DELIMITER: {
    fallback: 'comma',
    help: 'what parts the fields of its CSV',
    ...delimiter,
  },
  EXPORT_TIME_FORMAT: {
    fallback: 'rfc3339',
    help: 'how its CSV writes times: with a zone, in UTC without one, or counted since 1970',
    ...oneOf('rfc3339', 'utc', 's', 'ms', 'us', 'ns'),
  },
  EXPORT_ID_FORMAT: {
    fallback: 'hex',
    help: 'how its CSV writes ids: as hex, with 0x in front, or in base64',
    ...oneOf('hex', '0x', 'base64'),
  },
  LAKE_RETENTION: {
    fallback: '7d',
    help: 'how long files that no current version of a lake table names are kept',
    ...duration('1s', '3650d'),
  },
  NOTIFY_URL: {
    secret: true,
    help: 'where the start and end of runs is posted as JSON',
    ...httpUrl,
  },
  NOTIFY_ON: {
    fallback: 'nightly,failed,recovered',
    help: 'of which runs it is told: of kinds, whatever happens, and of what happens, to any run',
    ...notices,
  },
  NOTIFY_SECRET: {
    secret: true,
    help: 'signs what is posted, as Standard Webhooks say',
    ...text('whsec_ and 24 to 64 bytes in base64', /^whsec_[A-Za-z0-9+/]{32,88}={0,2}$/),
  },
  NOTIFY_FORMAT: {
    fallback: 'json',
    help: 'what is posted: the whole report of a run, or a line for a chat',
    ...oneOf('json', 'slack'),
  },
  API_HOST: {
    fallback: '127.0.0.1',
    help: 'where the read API listens',
    ...text('a host name or address', /^[\w.:-]+$/),
  },
  API_PORT: {
    fallback: '8080',
    help: 'its port; 0: a free one',
    ...port,
  },
  API_TOKEN: {
    secret: true,
    help: 'what the read API and the console ask for; needed beyond loopback',
    ...token,
  },
  API_READ_TOKEN: {
    secret: true,
    help: 'a second token that reads and orders nothing',
    ...token,
    accepted: `${token.accepted}; another than API_TOKEN`,
  },
  API_HOSTS: {
    help: 'the names that requests may be for, beside loopback ones and API_HOST',
    ...hostNames,
  },
  WORKER_HEALTH_PORT: {
    help: "a worker's health; unset: none",
    ...port,
  },
  LOG_LEVEL: {
    fallback: 'info',
    help: 'what is logged',
    ...oneOf('trace', 'debug', 'info', 'warn', 'error', 'silent'),
  },
} satisfies Readonly<Record<string, Declared<unknown>>>;

/** `SOURCE_URL` is `sourceUrl` in the configuration. */
type KeyOf<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${Lowercase<First>}${Capitalize<KeyOf<Rest>>}`
  : Lowercase<Name>;

function keyOf<Name extends string>(name: Name): KeyOf<Name> {
  return name.toLowerCase().replaceAll(/_./g, ([, letter = '']) => letter.toUpperCase()) as KeyOf<Name>;
}

type Table = typeof TABLE;
type ValueOf<Name extends keyof Table> = NonNullable<ReturnType<Table[Name]['parse']>>;

/** The settings, parsed: those with a default are always there. */
export type Settings = {
  readonly [Name in keyof Table as KeyOf<Name>]: Table[Name] extends { readonly fallback: string }
    ? ValueOf<Name>
    : ValueOf<Name> | undefined;
};
export type SettingKey = keyof Settings;

export interface Setting extends Declared<unknown> {
  readonly name: string;
  readonly key: SettingKey;
}

export const SETTINGS = Object.entries<Declared<unknown>>(TABLE).map(([name, declared]): Setting => ({
  ...declared,
  name,
  key: keyOf(name as keyof Table),
}));
