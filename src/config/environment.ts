/** Reads the environment and `.env`, the only place that does, and reports every problem at once. */
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseEnv } from 'node:util';
import { errorCode, errorLine, UsageError } from '../core/errors.ts';
import { canonicalId, canonicalPartyId } from '../core/ids.ts';
import { hideSecrets } from '../core/secrets.ts';
import { SETTINGS, type Setting, type SettingKey, type Settings } from './settings.ts';
import type { PartySelection } from './value-forms.ts';

/** Where a value came from, for the console's configuration page. */
export type Origin = 'environment' | '.env' | 'default' | 'unset' | `file ${string}`;

export interface Config extends Settings {
  readonly origins: Readonly<Record<SettingKey, Origin>>;
  /** What other libraries read under names of their own (AWS_…, HTTPS_PROXY, …), `.env` included. */
  readonly ambient: Readonly<Record<string, string>>;
}

export interface EnvironmentInput {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

/** What there is to read. */
interface Given extends EnvironmentInput {
  readonly dotEnv: Readonly<Record<string, string | undefined>>;
}

const GUARDED = /^(?:SOURCE|EXPORT|NIGHTLY)_/;
/** Names that are not ours but that users expect to work from `.env` too. */
const AMBIENT =
  /^(?:AWS_[A-Z0-9_]+|OTEL_[A-Z0-9_]+|https?_proxy|HTTPS?_PROXY|no_proxy|NO_PROXY|NODE_EXTRA_CA_CERTS|TEST_(?:DATABASE|REDIS|S3)_URL)$/;
/** What a compose file reads from the same `.env`: its own passwords and images, and Compose's settings. */
const COMPOSE =
  /^(?:COMPOSE_[A-Z_]+|TZ|POSTGRES_PASSWORD|POSTGRES_PORT|READER_PASSWORD|S3_ACCESS_KEY|S3_SECRET_KEY|MIRROR_(?:ENV_FILE|VERSION)|PROXY_(?:HOST|PORT|TLS_PORT)|(?:NODE|POSTGRES|REDIS|S3|PROXY)_IMAGE)$/;
const SHOWN_MAX = 80;
/** More, and it is another word. */
const EDITS_MAX = 3;

/** The real one; tests make their own. */
export function processEnvironment(): EnvironmentInput {
  return { env: process.env, cwd: process.cwd() };
}

/**
 * @throws UsageError with one line for each unknown name and each value that is not accepted
 */
export function readConfig({ env, cwd }: EnvironmentInput): Config {
  const problems: string[] = [];
  const given: Given = { env, dotEnv: readDotEnv(cwd, problems), cwd };
  problems.push(...unknownNames(given));
  const settings: Record<string, unknown> = {};
  const origins: Record<string, Origin> = {};
  for (const setting of SETTINGS) {
    const { text, origin } = lookUp(setting, given, problems);
    origins[setting.key] = origin;
    if (text !== undefined) settings[setting.key] = parse(setting, text, problems);
  }
  settings['nightlyParties'] = readPartyFile(settings['nightlyParties'] as PartySelection, cwd, problems);
  if (origins['apiToken'] === 'unset' || settings['apiToken'] !== undefined) {
    problems.push(...tokenProblems(settings['apiToken'], settings['apiReadToken']));
  }
  problems.push(...assetProblems(settings['exportColumns'], settings['sourceAssets']));
  if (typeof settings['dataDir'] === 'string') settings['dataDir'] = resolve(cwd, settings['dataDir']);
  if (problems.length > 0) throw new UsageError(problems);
  return { ...settings, origins, ambient: ambientOf(given) } as unknown as Config;
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

function tokenProblems(token: unknown, readToken: unknown): readonly string[] {
  if (readToken === undefined) return [];
  if (token === undefined) {
    return ['API_READ_TOKEN: given without API_TOKEN, so nobody could order anything; set API_TOKEN too'];
  }
  return token === readToken
    ? [
        'API_READ_TOKEN: is the same as API_TOKEN; give another one, which may read everything, and start or cancel nothing',
      ]
    : [];
}

/** Whose the rows of a CSV without assets are has to be said. */
function assetProblems(columns: unknown, assets: unknown): readonly string[] {
  const isUntold = columns instanceof Map && columns.get('asset_id') === null;
  if (!isUntold || (Array.isArray(assets) && assets.length === 1)) return [];
  return [
    'EXPORT_COLUMNS: asset_id=none leaves open which asset the rows are of; set SOURCE_ASSETS to that one',
  ];
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

function unknownNames({ env, dotEnv }: Given): readonly string[] {
  const known = new Set(
    SETTINGS.flatMap(({ name, secret }) => (secret === true ? [name, `${name}_FILE`] : [name])),
  );
  const isStray = (name: string): boolean => !known.has(name);
  const say = (where: string) => (name: string) =>
    `${name}: not a setting (in ${where}); see 'ledger-mirror --help' for those there are${nearest(name, known)}`;
  const inEnvironment = Object.keys(env).filter((name) => GUARDED.test(name) && isStray(name));
  const inFile = Object.keys(dotEnv).filter(
    (name) => isStray(name) && !AMBIENT.test(name) && !COMPOSE.test(name),
  );
  return [...inEnvironment.map(say('the environment')), ...inFile.map(say('.env'))];
}

/** A likely spelling: a known name that a few letters more, less, other or swapped would make. */
function nearest(name: string, known: ReadonlySet<string>): string {
  const near = [...known]
    .map((candidate) => ({ candidate, edits: editsBetween(name, candidate) }))
    .filter(({ edits }) => edits <= EDITS_MAX)
    .toSorted((a, b) => a.edits - b.edits);
  return near[0] === undefined ? '' : ` (did you mean ${near[0].candidate}?)`;
}

/** Letters put in, left out or replaced, at least, to make one of the other (Levenshtein). */
function editsBetween(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 0; i < from.length; i += 1) {
    const next = [i + 1];
    for (let j = 0; j < to.length; j += 1) {
      const replaced = (row[j] ?? 0) + (from[i] === to[j] ? 0 : 1);
      next.push(Math.min(replaced, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}

interface Found {
  readonly text: string | undefined;
  readonly origin: Origin;
}

function lookUp(setting: Setting, given: Given, problems: string[]): Found {
  const plain = find(setting.name, given);
  const file = setting.secret === true ? find(`${setting.name}_FILE`, given) : undefined;
  if (plain !== undefined && file !== undefined)
    problems.push(`${setting.name}: given twice, also as ${setting.name}_FILE; give one of them`);
  if (plain !== undefined) return plain;
  if (file !== undefined) {
    const path = resolve(given.cwd, file.text);
    const text = readGiven(`${setting.name}_FILE`, path, 'a readable file', problems);
    return text === undefined ? { text, origin: 'unset' } : { text: text.trim(), origin: `file ${path}` };
  }
  return { text: setting.fallback, origin: setting.fallback === undefined ? 'unset' : 'default' };
}

/** An empty value counts as unset: compose files and shells pass empty ones on. */
function find(name: string, { env, dotEnv }: Given): (Found & { readonly text: string }) | undefined {
  const [inEnvironment = '', inFile = ''] = [env[name], dotEnv[name]];
  if (inEnvironment !== '') return { text: inEnvironment, origin: 'environment' };
  return inFile === '' ? undefined : { text: inFile, origin: '.env' };
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

function readPartyFile(
  selection: PartySelection | undefined,
  cwd: string,
  problems: string[],
): PartySelection | undefined {
  if (selection?.kind !== 'file') return selection;
  const path = resolve(cwd, selection.path);
  const text = readGiven('NIGHTLY_PARTIES', path, 'a file of party ids, one a line', problems);
  if (text === undefined) return undefined;
  const words = text.split(/[\s,]+/).filter((word) => word !== '');
  // A source with ids of its own may have spaces and commas in them: then each is a line.
  const isOfWords = words.every((word) => canonicalId(word) !== undefined);
  const lines = isOfWords
    ? words
    : text
        .split('\n')
        .map((line) => line.trim())
        .filter((line) => line !== '');
  const ids = lines.map((line) => canonicalPartyId(line));
  const wrong = lines.find((_, index) => ids[index] === undefined);
  if (wrong !== undefined || lines.length === 0) {
    problems.push(
      `NIGHTLY_PARTIES: ${quote(path)} holds ${wrong === undefined ? 'no party id' : `${quote(wrong)}, which is no party id`}; give one id a line`,
    );
  }
  return { kind: 'list', ids: [...new Set(ids.filter((id) => id !== undefined))] };
}

function ambientOf({ env, dotEnv }: Given): Record<string, string> {
  const ambient: Record<string, string> = {};
  for (const [name, value] of [...Object.entries(dotEnv), ...Object.entries(env)]) {
    if (value !== undefined && value !== '' && AMBIENT.test(name)) ambient[name] = value;
  }
  return ambient;
}

/** What was given, printable and short. */
function quote(given: string): string {
  const short = given.length > SHOWN_MAX ? `${given.slice(0, SHOWN_MAX)}…` : given;
  return JSON.stringify(short);
}
