/** Reads the environment and `.env`, the only place that does, and reports every problem at once. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { diff, parseEnv } from 'node:util';
import { errorCode, errorLine, UsageError } from '../core/errors.ts';
import { canonicalId, canonicalPartyId } from '../core/ids.ts';
import { hideSecrets } from '../core/secrets.ts';
import { SETTINGS, type Setting, type SettingKey, type Settings } from './settings.ts';
import type { PartySelection } from './value-forms.ts';

/** Where a value came from, for the console's configuration page. A command such as `demo` sets some itself. */
export type Origin = 'environment' | '.env' | 'default' | 'unset' | 'this command' | `file ${string}`;

export interface Config extends Settings {
  readonly origins: Readonly<Record<SettingKey, Origin>>;
  /** As it was written, but for the values of secrets; what is unset is absent. */
  readonly texts: Readonly<Partial<Record<SettingKey, string>>>;
  /** What other libraries read under names of their own (AWS_…, HTTPS_PROXY, …), `.env` included. */
  readonly ambient: Readonly<Record<string, string>>;
}

export interface EnvironmentInput {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

/** What there is to read, and what is found wrong with it. */
interface Given extends EnvironmentInput {
  readonly dotEnv: Readonly<Record<string, string | undefined>>;
  readonly problems: string[];
}

const GUARDED = /^(?:SOURCE|EXPORT|NIGHTLY)_/;
/** Names that are not ours but that users expect to work from `.env` too. */
const AMBIENT =
  /^(?:AWS_[A-Z0-9_]+|OTEL_[A-Z0-9_]+|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|NODE_EXTRA_CA_CERTS|TEST_(?:DATABASE|REDIS|S3)_URL)$/;
/** What a compose file reads from the same `.env`: its own passwords and images, and Compose's settings. */
const COMPOSE =
  /^(?:COMPOSE_[A-Z_]+|TZ|POSTGRES_PASSWORD|POSTGRES_PORT|READER_PASSWORD|S3_ACCESS_KEY|S3_SECRET_KEY|MIRROR_(?:ENV_FILE|VERSION)|PROXY_(?:HOST|PORT|TLS_PORT)|(?:NODE|POSTGRES|REDIS|S3|PROXY)_IMAGE)$/;
const SHOWN_MAX = 80;
/** Letters put in or left out, two for one that is another; more, and it is another word. */
const EDITS_MAX = 4;

/** The real one; tests make their own. */
export function processEnvironment(): EnvironmentInput {
  return { env: process.env, cwd: process.cwd() };
}

/**
 * @throws UsageError with one line for each unknown name and each value that is not accepted
 */
export function readConfig({ env, cwd }: EnvironmentInput): Config {
  const problems: string[] = [];
  const given = { env, cwd, dotEnv: readDotEnv(cwd, problems), problems };
  refuseUnknownNames(given);
  const found = SETTINGS.map((setting) => ({ setting, ...lookUp(setting, given) }));
  const collect = <Value>(read: (one: (typeof found)[number]) => Value) =>
    Object.fromEntries(found.map((one) => [one.setting.key, read(one)]));
  const origins = collect(({ origin }) => origin) as Config['origins'];
  const texts = collect(({ setting, text }) => (setting.secret === true ? undefined : text));
  const settings = collect(({ setting, text }) => text && parse(setting, text, problems)) as {
    -readonly [Key in SettingKey]: Settings[Key];
  };
  settings.dataDir = texts['dataDir'] = resolve(cwd, settings.dataDir ?? '');
  if (settings.nightlyParties?.kind === 'file')
    settings.nightlyParties = readPartyFile(resolve(cwd, settings.nightlyParties.path), problems);
  refuseContradictions(settings, origins, problems);
  if (problems.length > 0) throw new UsageError(problems);
  return { ...settings, origins, texts, ambient: ambientOf(given) };
}

/** The same configuration, but for what a command decides itself: written as a user would, undefined where unset. */
export function changeSettings(
  config: Config,
  texts: Readonly<Partial<Record<SettingKey, string | undefined>>>,
): Config {
  const changed = SETTINGS.filter(({ key }) => key in texts);
  const values = changed.map(({ key, parse: read }) => [key, texts[key] && read(texts[key])]);
  const origins = changed.map(({ key }) => [key, 'this command']);
  return {
    ...config,
    ...Object.fromEntries(values),
    texts: { ...config.texts, ...texts },
    origins: { ...config.origins, ...Object.fromEntries(origins) },
  };
}

/** @param why the source is needed */
export function sourceMissing(why: string): UsageError {
  return new UsageError([`SOURCE_URL: not set, and ${why}; give the URL of the query service`]);
}

/** @throws UsageError where SOURCE_URL is not set */
export function requireSource({ sourceUrl }: Config): void {
  if (sourceUrl === undefined) throw sourceMissing('this command asks the source');
}

function parse(setting: Setting, text: string, problems: string[]): unknown {
  const value = setting.parse(text);
  if (value === undefined) {
    const shown =
      setting.secret === true ? 'the value given (a secret, not shown)' : quote(hideSecrets(text));
    problems.push(`${setting.name}: ${shown} is not accepted; give ${setting.accepted}`);
  }
  return value;
}

/** What each setting accepts, and together they do not. */
function refuseContradictions(
  { apiToken, apiReadToken, exportColumns, sourceAssets }: Settings,
  origins: Config['origins'],
  problems: string[],
): void {
  if (apiReadToken !== undefined && origins.apiToken === 'unset')
    problems.push(
      'API_READ_TOKEN: given without API_TOKEN, so nobody could order anything; set API_TOKEN too',
    );
  if (apiReadToken !== undefined && apiReadToken === apiToken)
    problems.push(
      'API_READ_TOKEN: is the same as API_TOKEN; give another one, which may read everything, and start or cancel nothing',
    );
  // Whose the rows of a CSV without assets are has to be said.
  if (exportColumns?.get('asset_id') === null && sourceAssets?.length !== 1)
    problems.push(
      'EXPORT_COLUMNS: asset_id=none leaves open which asset the rows are of; set SOURCE_ASSETS to that one',
    );
}

function readDotEnv(cwd: string, problems: string[]): Given['dotEnv'] {
  try {
    return parseEnv(readFileSync(resolve(cwd, '.env'), 'utf8'));
  } catch (error) {
    if (errorCode(error) !== 'ENOENT')
      problems.push(`.env: cannot be read (${errorLine(error)}); make it a readable text file`);
    return {};
  }
}

function refuseUnknownNames({ env, dotEnv, problems }: Given): void {
  const known = SETTINGS.flatMap(({ name, secret }) => (secret === true ? [name, `${name}_FILE`] : [name]));
  const inEnvironment = Object.keys(env).filter((name) => GUARDED.test(name));
  const inFile = Object.keys(dotEnv).filter((name) => !AMBIENT.test(name) && !COMPOSE.test(name));
  for (const [where, names] of Object.entries({ 'the environment': inEnvironment, '.env': inFile })) {
    for (const name of names.filter((one) => !known.includes(one))) {
      const likely = nearest(name, known);
      problems.push(
        `${name}: not a setting (in ${where}); see 'ledger-mirror --help' for those there are${likely}`,
      );
    }
  }
}

/** A likely spelling: a known name that a few letters more, less or swapped would make. */
function nearest(name: string, known: readonly string[]): string {
  const near = known
    .map((candidate) => ({ candidate, edits: diff(name, candidate).filter(([kept]) => kept !== 0).length }))
    .filter(({ edits }) => edits <= EDITS_MAX)
    .toSorted((a, b) => a.edits - b.edits);
  return near[0] === undefined ? '' : ` (did you mean ${near[0].candidate}?)`;
}

/** An empty value counts as unset: compose files and shells pass empty ones on. */
function lookUp(
  setting: Setting,
  given: Given,
): { readonly text?: string | undefined; readonly origin: Origin } {
  const { name, secret, fallback } = setting;
  const find = (wanted: string): { readonly text: string; readonly origin: Origin } | undefined => {
    const [inEnvironment, inFile] = [given.env[wanted] ?? '', given.dotEnv[wanted] ?? ''];
    if (inEnvironment !== '') return { text: inEnvironment, origin: 'environment' };
    return inFile === '' ? undefined : { text: inFile, origin: '.env' };
  };
  const plain = find(name);
  const file = secret === true ? find(`${name}_FILE`) : undefined;
  if (plain !== undefined && file !== undefined)
    given.problems.push(`${name}: given twice, also as ${name}_FILE; give one of them`);
  if (plain !== undefined) return plain;
  if (file !== undefined) {
    const path = resolve(given.cwd, file.text);
    const text = readGiven(`${name}_FILE`, path, 'a readable file', given.problems);
    return { text: text?.trim(), origin: `file ${path}` };
  }
  return { text: fallback, origin: fallback === undefined ? 'unset' : 'default' };
}

/** What a file holds that a setting names. */
function readGiven(name: string, path: string, wanted: string, problems: string[]): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    problems.push(`${name}: cannot read ${quote(path)} (${errorCode(error)}); give ${wanted}`);
    return undefined;
  }
}

function readPartyFile(path: string, problems: string[]): PartySelection {
  const text = readGiven('NIGHTLY_PARTIES', path, 'a file of party ids, one a line', problems);
  const split = (separator: RegExp): readonly string[] =>
    (text ?? '')
      .split(separator)
      .map((part) => part.trim())
      .filter((part) => part !== '');
  // A source with ids of its own may have spaces and commas in them: then each is a line.
  const words = split(/[\s,]+/);
  const lines = words.every((word) => canonicalId(word) !== undefined) ? words : split(/\n/);
  const ids = lines.map((line) => canonicalPartyId(line));
  const wrong = lines.find((_, index) => ids[index] === undefined);
  const what = wrong === undefined ? 'no party id' : `${quote(wrong)}, which is no party id`;
  if (text !== undefined && (wrong !== undefined || lines.length === 0))
    problems.push(`NIGHTLY_PARTIES: ${quote(path)} holds ${what}; give one id a line`);
  return { kind: 'list', ids: [...new Set(ids.filter((id) => id !== undefined))] };
}

function ambientOf({ env, dotEnv }: Given): Record<string, string> {
  const given = [...Object.entries(dotEnv), ...Object.entries(env)];
  return Object.fromEntries(
    given.filter((pair): pair is [string, string] => (pair[1] ?? '') !== '' && AMBIENT.test(pair[0])),
  );
}

/** What was given, printable and short. */
function quote(given: string): string {
  return JSON.stringify(given.length > SHOWN_MAX ? `${given.slice(0, SHOWN_MAX)}…` : given);
}
