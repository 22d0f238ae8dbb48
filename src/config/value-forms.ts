/** The formats of setting values: which strings are accepted, and how they are parsed. */
import { parseCron } from '../time/cron.ts';
import type { Asset } from '../ledger/assets.ts';
import { canonicalId, canonicalPartyId } from '../ledger/ids.ts';
import {
  PostgresUrl,
  readPostgresUrl,
} from '../network/postgres/postgres-url.ts';
import { KNOWN_COLUMNS, type KnownColumn } from '../ledger/header.ts';

const SIGNER_KEY =
  /^PRIVATE\+KEY\+[^\s+]+\+[0-9a-f]{8}\+([A-Za-z0-9+/]+={0,2})$/;
const VERIFIER_KEY = /^[^\s+]+\+[0-9a-f]{8}\+[A-Za-z0-9+/]+={0,2}$/;
/** The first byte of an Ed25519 key in a signed note. */
const ED25519 = 1;

export interface Form<Value> {
  /** Describes the accepted values, worded to fit into an error message. */
  readonly accepted: string;
  /**
   * Explains why a value is rejected and what to write instead, if `accepted` does not
   * make that clear.
   */
  readonly explain?: (text: string) => string | undefined;
  /** Returns undefined if the string is not accepted. */
  readonly parse: (text: string) => Value | undefined;
}

/**
 * The parties that the nightly run exports. A file of ids is read when the configuration
 * is loaded.
 */
export type PartySelection =
  | { kind: 'all' }
  | { kind: 'list'; ids: readonly string[] }
  | { kind: 'file'; path: string };

/**
 * The assets whose decimals are known; the file is read when the configuration is loaded.
 */
export type AssetsFile =
  | { kind: 'list'; assets: readonly Asset[] }
  | { kind: 'file'; path: string };

function form<Value>(
  accepted: string,
  parse: (given: string) => Value | undefined,
): Form<Value> {
  return { accepted, parse };
}

/** Accepts a string unchanged if it passes the check. */
function textThat(
  accepted: string,
  isRight: (given: string) => boolean,
): Form<string> {
  return form(accepted, (given) => (isRight(given) ? given : undefined));
}

export function text(accepted: string, pattern: RegExp): Form<string> {
  return textThat(accepted, (given) => pattern.test(given));
}

export const parameter = text('a query parameter name', /^[\w.\-[\]]+$/);

/**
 * Accepts a URL with one of the protocols. A bare % in the user or password is rejected,
 * because parsers would decode it differently.
 * @param what names the kind of URL in messages
 */
export function url(what: string, ...protocols: readonly string[]): Form<URL> {
  return form(`${what} (write a % in its password as %25)`, (given) => {
    const parsed = URL.parse(given);
    const isEscaped = !/%(?![0-9a-f]{2})/i.test(
      `${parsed?.username}:${parsed?.password}`,
    );
    return parsed !== null && protocols.includes(parsed.protocol) && isEscaped
      ? parsed
      : undefined;
  });
}

/** Matches a host typed without a scheme, optionally followed by a port or a path. */
const LACKS_SCHEME =
  /^(?:localhost|[\w-]+(?:\.[\w-]+)+|[\w-]+(?=:\d))(?::\d+)?(?:\/|$)/;

/** Accepts connection URLs as psql and cloud providers write them. */
export const postgresUrl: Form<PostgresUrl> = {
  accepted:
    'a postgres:// or postgresql:// URL (write a % in its password as %25)',
  parse: (given) => {
    const target = readPostgresUrl(given);
    return typeof target === 'string'
      ? undefined
      : new PostgresUrl(given, target);
  },
  explain: (given) => {
    const read = readPostgresUrl(given);
    return typeof read === 'string' ? read : undefined;
  },
};

export const httpUrl: Form<URL> = {
  ...url('an http:// or https:// URL', 'http:', 'https:'),
  explain: (given) =>
    LACKS_SCHEME.test(given)
      ? 'does not begin with http:// or https://'
      : undefined,
};

/**
 * Accepts the base URL of a service, to which the client appends paths and parameters.
 */
export const serviceUrl: Form<URL> = {
  ...httpUrl,
  accepted:
    `${httpUrl.accepted}, without a query or fragment; a key goes into ` +
    'SOURCE_AUTHORIZATION',
  parse: (given) => (/[?#]/.test(given) ? undefined : httpUrl.parse(given)),
};

/** Headers that are set by HTTP itself or by a different setting. */
const RESERVED_HEADERS =
  /^(?:host|connection|content-length|transfer-encoding|te|upgrade|expect|accept|accept-encoding|user-agent|authorization|proxy-.*)$/;

/** Accepts header lines. The result maps lower-case header names to values. */
export const httpHeaders = form(
  'one "Name: value" per line; the Authorization header goes into SOURCE_AUTHORIZATION',
  (given): Readonly<Record<string, string>> | undefined => {
    const headers: Record<string, string> = {};
    for (const line of given.split(/\r?\n/)) {
      if (line.trim() === '' || line.startsWith('#')) continue;
      const [, name, value] =
        /^([\w!#$%&'*+.^`|~-]+):[ \t]*([\x21-\x7e][\x20-\x7e]*?)[ \t]*$/.exec(
          line,
        ) ?? [];
      if (name === undefined || value === undefined) return undefined;
      const key = name.toLowerCase();
      if (RESERVED_HEADERS.test(key) || key in headers) return undefined;
      headers[key] = value;
    }
    return Object.keys(headers).length === 0 ? undefined : headers;
  },
);

/**
 * Accepts PEM. Its line breaks may be written as `\n` if the value must fit on one line.
 */
function pemReadBy(
  accepted: string,
  read: (pem: string) => unknown,
): Form<string> {
  return form(accepted, (given) => {
    const pem = given.replaceAll(String.raw`\n`, '\n');
    try {
      read(pem);
      return pem;
    } catch {
      return undefined;
    }
  });
}

/** Loads the module on first use, because `--version` and `--help` do not need it. */
const crypto = () => process.getBuiltinModule('node:crypto');

export const certificate = pemReadBy(
  'a certificate in PEM',
  (pem) => new (crypto().X509Certificate)(pem),
);

export const privateKey = pemReadBy(
  'a private key in PEM, without a passphrase',
  (pem) => crypto().createPrivateKey(pem),
);

const storeUrl = url('', 'file:', 's3:');

/**
 * Accepts a umask only if it denies write access to other users and leaves the mirror
 * itself able to read.
 */
export const umask = form('077, 027 or 022', (given) =>
  /^0?0(?:77|27|22)$/.test(given) ? Number.parseInt(given, 8) : undefined,
);

/** The parameters of an S3 store's URL, each with a check of its value. */
const STORE_PARAMETERS: Readonly<Record<string, (given: string) => boolean>> = {
  region: (given) => given !== '',
  endpoint: (given) => httpUrl.parse(given) !== undefined,
  style: (given) => /^(?:virtual|path)$/.test(given),
  sse: (given) => /^(?:AES256|aws:kms|aws:kms:dsse)$/.test(given),
  'kms-key': (given) => /^[\w:/.-]+$/.test(given),
  'storage-class': (given) => /^[A-Z][A-Z0-9_]*$/.test(given),
};
/**
 * Storage classes whose objects must be restored before they can be read. They are
 * rejected, because the mirror may read its objects at any time.
 */
const ARCHIVE_CLASSES: ReadonlySet<string> = new Set([
  'GLACIER',
  'DEEP_ARCHIVE',
  'ARCHIVE',
  'COLD_ARCHIVE',
]);

/** Accepts an Ed25519 key. Its hash is verified later, when the key is opened. */
export const signerKey: Form<string> = {
  accepted: 'PRIVATE+KEY+<name>+<hash>+<key>, the private key of a signed note',
  parse: (given) => {
    const bytes = Buffer.from(SIGNER_KEY.exec(given)?.[1] ?? '', 'base64');
    const isEd25519 = bytes.length === 33 && bytes[0] === ED25519;
    return isEd25519 ? given : undefined;
  },
  explain: (given) => {
    if (given.startsWith('-----BEGIN '))
      return 'is a key of OpenSSL or OpenSSH';
    if (SIGNER_KEY.test(given)) return 'is not an Ed25519 key';
    return VERIFIER_KEY.test(given)
      ? 'is a public key, which cannot sign'
      : undefined;
  },
};

export const objectStoreUrl: Form<URL> = {
  accepted:
    'file:///dir or s3://bucket/prefix?region=…&endpoint=…&style=virtual' +
    '&sse=aws:kms&kms-key=…&storage-class=…',
  parse: (given) => {
    const parsed = storeUrl.parse(given);
    if (parsed?.protocol !== 's3:')
      return parsed?.host === '' &&
        parsed.search === '' &&
        parsed.pathname.length > 1
        ? parsed
        : undefined;
    const isUsable = storeProblem(parsed) === undefined;
    return parsed.host !== '' && isUsable ? parsed : undefined;
  },
  explain: (given) => {
    const parsed = storeUrl.parse(given);
    return parsed?.protocol === 's3:' ? storeProblem(parsed) : undefined;
  },
};

/**
 * Returns what is wrong with the parameters of an S3 store's URL, and what to write
 * instead.
 */
function storeProblem({ searchParams }: URL): string | undefined {
  for (const [name, value] of searchParams) {
    const isRight = STORE_PARAMETERS[name];
    if (isRight === undefined)
      return `has the parameter ${name}=, which is not known`;
    if (!isRight(value)) return `has ${name}=${value}, which is not known`;
  }
  const storageClass = searchParams.get('storage-class') ?? '';
  if (ARCHIVE_CLASSES.has(storageClass))
    return (
      `names an archive by storage-class=${storageClass}, whose objects cannot be read ` +
      'when they are needed (STANDARD_IA and GLACIER_IR can)'
    );
  const hasKey = searchParams.has('kms-key');
  const isKms = searchParams.get('sse')?.startsWith('aws:kms') === true;
  return hasKey && !isKms ? 'has kms-key= without sse=aws:kms' : undefined;
}

/** Accepts a whole number in plain decimal notation. */
export function integer(
  min: number,
  max: number,
  accepted?: string,
): Form<number> {
  return form(accepted ?? `a whole number from ${min} to ${max}`, (given) => {
    const value = /^\d{1,10}$/.test(given) ? Number(given) : Number.NaN;
    return value >= min && value <= max ? value : undefined;
  });
}

export const port = integer(0, 65_535, 'a port from 0 to 65535');

/** Accepts a percentage; the result is a fraction between 0 and 1. */
export const percentage = form(
  'a percentage from 0% to 100%, such as 0.5%',
  (given) => {
    const share = /^\d{1,3}(?:\.\d{1,4})?%$/.test(given)
      ? Number.parseFloat(given) / 100
      : Number.NaN;
    return share <= 1 ? share : undefined;
  },
);

const BYTES = {
  GiB: 2 ** 30,
  GB: 1e9,
  MiB: 2 ** 20,
  MB: 1e6,
  KiB: 2 ** 10,
  KB: 1e3,
  B: 1,
};
const MILLISECONDS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000 };

/** A size in bytes; a number without a unit is in bytes. */
export const byteSize = withUnit('size', BYTES);

/** A duration in milliseconds. */
export const duration = withUnit('duration', MILLISECONDS);

function withUnit(what: string, units: Readonly<Record<string, number>>) {
  const read = (given: string): number => {
    const [, amount, unit = 'B'] = /^(\d{1,12})([a-z]+)?$/i.exec(given) ?? [];
    return Number(amount) * (units[unit] ?? Number.NaN);
  };
  return (min: string, max: string): Form<number> =>
    form(`a ${what} from ${min} to ${max}`, (given) => {
      const value = read(given);
      return value >= read(min) && value <= read(max) ? value : undefined;
    });
}

export function oneOf<const Word extends string>(
  ...words: readonly Word[]
): Form<Word> {
  return form(either(words), (given) => words.find((word) => word === given));
}

const LOG_LEVELS = oneOf('trace', 'debug', 'info', 'warn', 'error', 'silent');
/** Other programs' names for the levels. */
const LEVEL_WORDS: Readonly<Record<string, string>> = {
  verbose: 'debug',
  information: 'info',
  notice: 'info',
  warning: 'warn',
  err: 'error',
  fatal: 'error',
  critical: 'error',
  off: 'silent',
  none: 'silent',
};

/** Accepts a level in upper or lower case, and common alternative names. */
export const logLevel = form(LOG_LEVELS.accepted, (given) => {
  const word = given.trim().toLowerCase();
  return LOG_LEVELS.parse(LEVEL_WORDS[word] ?? word);
});

function either(words: readonly string[]): string {
  return `${words.slice(0, -1).join(', ')} or ${words.at(-1)}`;
}

/** Accepts a comma-separated list in which every part is valid, and drops duplicates. */
function listOf<Value>(
  accepted: string,
  read: (part: string) => Value | undefined,
): Form<readonly Value[]> {
  return form(accepted, (given) => {
    const values = given.split(',').map((part) => read(part.trim()));
    return values.every((value) => value !== undefined)
      ? [...new Set(values)]
      : undefined;
  });
}

export const idList = listOf(
  'asset ids (64 hex digits), separated by commas',
  canonicalId,
);

const NOTICES =
  'nightly, sync, export, load, verify, started, waiting, finished, failed, cancelled, recovered';

/**
 * Selects the notices that NOTIFY_URL receives: all of them, those about one kind of run,
 * or those about one event.
 */
export const notices = listOf(`all, or any of: ${NOTICES}`, (word) =>
  ['all', ...NOTICES.split(', ')].find((known) => known === word),
);

/** Maps our column names to the source's; null means that the CSV has no such column. */
export const columnNames = form(
  'our name=its name, separated by commas; =none for a column that it lacks (any ' +
    'but quantity)',
  (given) => {
    const names = new Map<KnownColumn, string | null>();
    for (const pair of given.split(',')) {
      const [, ours = '', theirs = ''] =
        /^\s*(\w+)\s*=\s*(\S.*?)\s*$/.exec(pair) ?? [];
      const column = KNOWN_COLUMNS.find((name) => name === ours);
      if (column === undefined || theirs === '' || names.has(column))
        return undefined;
      if (column === 'quantity' && theirs === 'none') return undefined;
      names.set(column, theirs === 'none' ? null : theirs);
    }
    return names;
  },
);

const DELIMITERS = new Map(
  Object.entries({ comma: ',', semicolon: ';', tab: '\t', pipe: '|' }),
);

export const delimiter = form(either([...DELIMITERS.keys()]), (given) =>
  DELIMITERS.get(given),
);

const partyIds = listOf('party ids', canonicalPartyId);

export const partySelection = form(
  'all, party ids separated by commas, or @file',
  (given): PartySelection | undefined => {
    if (given === 'all') return { kind: 'all' };
    if (given.startsWith('@'))
      return given.length > 1
        ? { kind: 'file', path: given.slice(1) }
        : undefined;
    const ids = partyIds.parse(given);
    return ids && { kind: 'list', ids };
  },
);

export const assetsFile = form(
  'the path of a JSON file',
  (given): AssetsFile | undefined =>
    given.includes('\0') ? undefined : { kind: 'file', path: given },
);

export const cron = textThat(
  'a cron expression with five fields, such as 0 2 * * * (daily at 02:00), or six ' +
    'with seconds first',
  (given) => parseCron(given) !== undefined,
);

// The default, UTC, is accepted without a `DateTimeFormat`. The first one of a process
// takes 15 ms or more, which every command would have to spend.
export const timeZone = textReadBy(
  'an IANA time zone',
  (zone) => zone === 'UTC' || Intl.DateTimeFormat('en', { timeZone: zone }),
);

/**
 * Accepts a string that a library can parse.
 * @param read the library's parser, which throws if the string is invalid
 */
function textReadBy(
  accepted: string,
  read: (given: string) => unknown,
): Form<string> {
  return textThat(accepted, (given) => {
    try {
      return Boolean(read(given));
    } catch {
      return false;
    }
  });
}

const TOKEN_CHARACTERS_MIN = 16;
const TOKEN_CHARACTERS_DIFFERENT_MIN = 8;
/** How tokens in published examples begin. Network scanners try these first. */
const EXAMPLE_TOKEN =
  /^(?:change[-_ ]?(?:this|me|it)|your[-_ ]|example|at-least)/i;

/**
 * An API token, which must be long and varied enough that it cannot be guessed over the
 * network.
 */
export const token = textThat(
  `at least ${TOKEN_CHARACTERS_MIN} printable characters, ` +
    `${TOKEN_CHARACTERS_DIFFERENT_MIN} of them different, and not an example; for ` +
    `instance the output of 'openssl rand -hex 32'`,
  (given) =>
    /^[\x21-\x7e]+$/.test(given) &&
    given.length >= TOKEN_CHARACTERS_MIN &&
    new Set(given).size >= TOKEN_CHARACTERS_DIFFERENT_MIN &&
    !EXAMPLE_TOKEN.test(given),
);

const HOST_NAME =
  /^(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,250}[a-z0-9])?$|^[0-9a-f:]+$/;

/** A base path. The result has no trailing slash, and is empty for `/`. */
export const basePath = form('a path such as /ledger', (given) =>
  /^\/$|^(?:\/(?!\.+(?:\/|$))[\w.~-]+)+\/?$/.test(given)
    ? given.replace(/\/$/, '')
    : undefined,
);

/** The host names for which the API accepts requests. */
export const hostNames = listOf(
  'host names or addresses, separated by commas; *.name for every name under it',
  (given) => {
    const name = given.toLowerCase().replace(/^\[(.*)\]$/, '$1');
    return HOST_NAME.test(name) ? name : undefined;
  },
);

/**
 * Origins as browsers send them: a scheme, a host, and a port unless it is the scheme's
 * default.
 */
export const origins = listOf(
  'origins such as https://app.example.com, separated by commas',
  (given) => {
    const parsed = URL.parse(given);
    const isOrigin =
      parsed !== null &&
      /^https?:$/.test(parsed.protocol) &&
      /^https?:\/\/[^/?#@]+\/?$/i.test(given);
    return isOrigin ? parsed.origin : undefined;
  },
);
