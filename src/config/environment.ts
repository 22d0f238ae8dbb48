/**
 * The only module that reads the environment and `.env`. It reports all problems at once.
 */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseEnv } from 'node:util';
import { didYouMean, findNear } from '../errors/did-you-mean.ts';
import { errorCode, UsageError } from '../errors/errors.ts';
import { type Asset, parseAssets } from '../ledger/assets.ts';
import { canonicalId, canonicalPartyId } from '../ledger/ids.ts';
import { hideSecrets } from '../secrets/secret-masking.ts';
import { decodeText, findCutValues, isServiceLink } from './dot-env.ts';
import {
  SETTINGS,
  type Setting,
  type SettingKey,
  type Settings,
} from './settings.ts';

/**
 * Where a value came from, for the console's configuration page. A command such as `demo`
 * sets some values itself.
 */
export type Origin =
  | 'environment'
  | '.env'
  | 'default'
  | 'unset'
  | 'this command'
  | `file ${string}`;

export interface Config extends Settings {
  readonly origins: Readonly<Record<SettingKey, Origin>>;
  /**
   * The values as the user wrote them, except the values of secrets; unset settings are
   * absent.
   */
  readonly texts: Readonly<Partial<Record<SettingKey, string>>>;
  /**
   * Variables that configure other libraries (AWS_…, HTTPS_PROXY, …), including those
   * from `.env`.
   */
  readonly ambient: Readonly<Record<string, string>>;
}

export interface EnvironmentInput {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

const GUARDED = /^(?:SOURCE|EXPORT|NIGHTLY)_/;
/** Names of other programs' variables, which users expect to work in `.env` too. */
const AMBIENT =
  /^(?:AWS_[A-Z0-9_]+|OTEL_[A-Z0-9_]+|(?:https?|all|no)_proxy|(?:HTTPS?|ALL|NO)_PROXY|NODE_EXTRA_CA_CERTS|TEST_(?:DATABASE|REDIS|S3)_URL)$/;
/**
 * Variables for the compose file, which uses the same `.env`: its own passwords and
 * images, and Compose's settings.
 */
const COMPOSE =
  /^(?:COMPOSE_[A-Z_]+|TZ|POSTGRES_PASSWORD|POSTGRES_PORT|READER_PASSWORD|S3_ACCESS_KEY|S3_SECRET_KEY|MIRROR_(?:ENV_FILE|VERSION)|PROXY_(?:HOST|PORT|TLS_PORT)|(?:NODE|POSTGRES|REDIS|S3|PROXY)_IMAGE)$/;
const SHOWN_MAX = 80;

/** Returns the environment of this process; tests build their own. */
export function processEnvironment(): EnvironmentInput & {
  readonly env: NodeJS.ProcessEnv;
} {
  return { env: process.env, cwd: process.cwd() };
}

/**
 * Reads and checks the whole configuration.
 * @throws UsageError with one line for each unknown name and each invalid value
 */
export function readConfig({ env, cwd }: EnvironmentInput): Config {
  const problems: string[] = [];
  /** Reads a file that the configuration refers to. A missing `.env` is accepted. */
  const readGiven = (
    name: string,
    path: string,
    wanted: string,
  ): string | undefined => {
    try {
      const text = decodeText(readFileSync(path));
      if (text === undefined)
        problems.push(
          `${name}: ${quote(path)} is not UTF-8 text (perhaps UTF-16); ` +
            'save it as UTF-8',
        );
      return text;
    } catch (error) {
      const code = errorCode(error);
      if (name !== '.env' || code !== 'ENOENT')
        problems.push(
          `${name}: cannot read ${quote(path)} (${code}); give ${wanted}`,
        );
      return undefined;
    }
  };
  const dotEnvText =
    readGiven('.env', resolve(cwd, '.env'), 'a readable text file, or none') ??
    '';
  const dotEnv = parseEnv(dotEnvText);
  for (const name of findCutValues(dotEnvText))
    problems.push(
      `${name}: has a # outside of quotes (in .env), where programs differ over what ` +
        'follows; write the value in single quotes',
    );
  /**
   * Looks up a variable. An empty value counts as unset, because compose files and shells
   * pass on empty variables.
   */
  const find = (name: string) => {
    if (env[name] && !isServiceLink(name, env[name]))
      return { text: env[name], origin: 'environment' as const };
    return dotEnv[name]
      ? { text: dotEnv[name], origin: '.env' as const }
      : undefined;
  };
  const lookUp = ({
    name,
    secret,
    fallback,
  }: Setting): { text?: string | undefined; origin: Origin } => {
    const plain = find(name);
    const file = secret === true ? find(`${name}_FILE`) : undefined;
    if (plain && file)
      problems.push(
        `${name}: given twice, also as ${name}_FILE; give one of them`,
      );
    if (plain || !file)
      return (
        plain ?? {
          text: fallback,
          origin: fallback === undefined ? 'unset' : 'default',
        }
      );
    const path = resolve(cwd, file.text);
    const text = readGiven(`${name}_FILE`, path, 'a readable file')?.trim();
    return { text, origin: `file ${path}` };
  };
  const parse = (
    { name, secret, parse: read, accepted, explain }: Setting,
    { text, origin }: { readonly text: string; readonly origin: Origin },
  ): unknown => {
    const value = read(text);
    if (value === undefined) {
      const place = origin.startsWith('file ') ? `of the ${origin}` : 'given';
      const shown =
        secret === true
          ? `the value ${place} (a secret, not shown)`
          : quote(hideSecrets(text));
      const why = text === '' ? 'is empty' : explain?.(text);
      const reason = why === undefined ? '' : `: it ${why}`;
      problems.push(
        `${name}: ${shown} is not accepted${reason}; give ${accepted}`,
      );
    }
    return value;
  };
  problems.push(...findUnknownNames(env, dotEnv));
  const found = SETTINGS.map((setting) => ({ setting, ...lookUp(setting) }));
  const collect = <Value>(read: (one: (typeof found)[number]) => Value) =>
    Object.fromEntries(found.map((one) => [one.setting.key, read(one)]));
  const origins = collect(({ origin }) => origin) as Config['origins'];
  const texts = collect(({ setting, text }) =>
    setting.secret === true ? undefined : text,
  );
  const settings = collect(({ setting, text, origin }) =>
    text === undefined ? undefined : parse(setting, { text, origin }),
  ) as {
    -readonly [Key in SettingKey]: Settings[Key];
  };
  const dataDir = resolve(cwd, settings.dataDir ?? '');
  settings.dataDir = dataDir;
  texts['dataDir'] = dataDir;
  const files = { cwd, readGiven, problems };
  settings.nightlyParties = readParties(settings.nightlyParties, files);
  if (settings.assetsFile?.kind === 'file') {
    // Other processes of this mirror may run in other folders.
    texts['assetsFile'] = resolve(cwd, settings.assetsFile.path);
    settings.assetsFile = readAssets(settings.assetsFile.path, files);
  }
  problems.push(...findContradictions(settings, origins));
  if (problems.length > 0) throw new UsageError(problems);
  const given = [...Object.entries(dotEnv), ...Object.entries(env)];
  const ambient = given.filter(([name, text]) => text && AMBIENT.test(name));
  return {
    ...settings,
    origins,
    texts,
    ambient: Object.fromEntries(ambient) as Config['ambient'],
  };
}

/**
 * Returns the configuration with some settings overridden. Values are strings as a user
 * would write them; undefined clears a setting.
 */
export function changeSettings(
  config: Config,
  texts: Readonly<Partial<Record<SettingKey, string | undefined>>>,
): Config {
  const changed = SETTINGS.filter(({ key }) => key in texts);
  const values = changed.map(({ key, parse: read }) => [
    key,
    texts[key] && read(texts[key]),
  ]);
  const origins = changed.map(({ key }) => [
    key,
    texts[key] === undefined ? 'unset' : 'this command',
  ]);
  return {
    ...config,
    ...Object.fromEntries(values),
    texts: { ...config.texts, ...texts },
    origins: { ...config.origins, ...Object.fromEntries(origins) },
  };
}

/** Returns the assets whose decimals and symbols are known; none if no file is set. */
export function knownAssets({
  assetsFile,
}: Pick<Config, 'assetsFile'>): readonly Asset[] {
  return assetsFile?.kind === 'list' ? assetsFile.assets : [];
}

/**
 * Returns the error for a missing source.
 * @param why the reason why the source is needed, for the message
 * @param instead what the user can do without a source, if there is anything
 */
export function sourceMissing(why: string, instead?: string): UsageError {
  const or = instead === undefined ? '' : `, or ${instead}`;
  return new UsageError([
    `SOURCE_URL: not set, and ${why}; give the URL of the query service${or}`,
  ]);
}

/**
 * Requires that a source is configured.
 * @throws UsageError if SOURCE_URL is not set
 */
export function requireSource({ sourceUrl }: Config): void {
  if (sourceUrl === undefined)
    throw sourceMissing('this command queries the source');
}

/** Finds settings that are individually valid but contradict each other. */
function findContradictions(
  settings: Settings,
  origins: Config['origins'],
): readonly string[] {
  const { apiToken, apiReadToken, exportColumns, sourceAssets } = settings;
  const problems: string[] = [];
  if (apiReadToken !== undefined && origins.apiToken === 'unset') {
    problems.push(
      'API_READ_TOKEN: given without API_TOKEN, so nobody could order anything; set API_TOKEN too',
    );
  }
  if (apiReadToken !== undefined && apiReadToken === apiToken) {
    problems.push(
      'API_READ_TOKEN: is the same as API_TOKEN; give a different one, which can only read',
    );
  }
  // If the CSV has no asset column, SOURCE_ASSETS must name the asset that its rows
  // belong to.
  if (exportColumns?.get('asset_id') === null && sourceAssets?.length !== 1) {
    problems.push(
      'EXPORT_COLUMNS: asset_id=none leaves open which asset the rows are of; set SOURCE_ASSETS to that one',
    );
  }
  const keyProblem = findKeyProblem(settings);
  if (keyProblem !== undefined) problems.push(keyProblem);
  return problems;
}

function findKeyProblem({
  sourceClientCert: cert,
  sourceClientKey: key,
}: Settings): string | undefined {
  if (cert === undefined && key === undefined) return undefined;
  if (cert === undefined)
    return 'SOURCE_CLIENT_KEY: given without SOURCE_CLIENT_CERT; give both or neither';
  if (key === undefined)
    return 'SOURCE_CLIENT_CERT: given without SOURCE_CLIENT_KEY; give both or neither';
  return isCertificatePair(cert, key)
    ? undefined
    : 'SOURCE_CLIENT_KEY: is not the key of SOURCE_CLIENT_CERT; give the one that belongs to it';
}

/** Whether the private key belongs to the certificate; both are valid PEM. */
export function isCertificatePair(cert: string, key: string): boolean {
  // Load this module lazily, so that `--version`, which needs no certificate, starts
  // fast.
  const { createPrivateKey, X509Certificate } =
    process.getBuiltinModule('node:crypto');
  return new X509Certificate(cert).checkPrivateKey(createPrivateKey(key));
}

function findUnknownNames(
  env: EnvironmentInput['env'],
  dotEnv: EnvironmentInput['env'],
): readonly string[] {
  const known = SETTINGS.flatMap(({ name, secret }) =>
    secret === true ? [name, `${name}_FILE`] : [name],
  );
  // Variables of other programs may have names like ours (SOURCE_DATE_EPOCH, Kubernetes'
  // service links), so a name is treated as a typo only if it is close to one of our
  // settings.
  const inEnvironment = Object.keys(env).filter(
    (name) =>
      GUARDED.test(name) &&
      (findNear(name, known) !== undefined ||
        known.includes(name.replace(/_FILE$/, ''))),
  );
  const inFile = Object.keys(dotEnv).filter(
    (name) => !AMBIENT.test(name) && !COMPOSE.test(name),
  );
  return Object.entries({
    'the environment': inEnvironment,
    '.env': inFile,
  }).flatMap(([where, names]) =>
    names
      .filter((name) => !known.includes(name))
      .map(
        (name) =>
          `${name}: not a setting (in ${where}); 'ledger-mirror --help' ` +
          `lists the settings${didYouMean(findNear(name, known))}`,
      ),
  );
}

/** Reads files that settings name, and collects what is wrong with them. */
interface GivenFiles {
  readonly cwd: string;
  readonly readGiven: (
    name: string,
    path: string,
    wanted: string,
  ) => string | undefined;
  readonly problems: string[];
}

function readParties(
  selection: Settings['nightlyParties'],
  { cwd, readGiven, problems }: GivenFiles,
): Settings['nightlyParties'] {
  if (selection?.kind !== 'file') return selection;
  const path = resolve(cwd, selection.path);
  const wanted = 'a file of party ids, one a line';
  const text = readGiven('NIGHTLY_PARTIES', path, wanted);
  return { kind: 'list', ids: parsePartyFile(path, text, problems) };
}

function readAssets(
  given: string,
  { cwd, readGiven, problems }: GivenFiles,
): Settings['assetsFile'] {
  const path = resolve(cwd, given);
  const wanted = 'a readable JSON file of assets, or none';
  const text = readGiven('ASSETS_FILE', path, wanted);
  if (text === undefined) return undefined;
  const read = parseAssets(text);
  if ('assets' in read) return { kind: 'list', assets: read.assets };
  problems.push(`ASSETS_FILE: cannot use ${quote(path)}: ${read.problem}`);
  return undefined;
}

function parsePartyFile(
  path: string,
  text: string | undefined,
  problems: string[],
): readonly string[] {
  const split = (separator: RegExp) =>
    (text ?? '').split(separator).flatMap((part) => part.trim() || []);
  // Ids in a source's own format may contain spaces and commas. If any word is not a
  // plain id, treat each line as one id.
  const words = split(/[\s,]+/);
  const lines = words.every((word) => canonicalId(word) !== undefined)
    ? words
    : split(/\n/);
  const ids = lines.map((line) => canonicalPartyId(line));
  const wrong = lines.find((_, index) => ids[index] === undefined);
  const what =
    wrong === undefined
      ? 'no party id'
      : `${quote(wrong)}, which is no party id`;
  if (text !== undefined && (wrong !== undefined || lines.length === 0))
    problems.push(
      `NIGHTLY_PARTIES: ${quote(path)} holds ${what}; give one id a line`,
    );
  return [...new Set(ids.filter((id) => id !== undefined))];
}

/** Quotes a value for a message, escaped and truncated. */
function quote(given: string): string {
  return JSON.stringify(
    given.length > SHOWN_MAX ? `${given.slice(0, SHOWN_MAX)}…` : given,
  );
}
