/** The resolved configuration as the console and `config` show it: each value, where it came from, no secret. */
import { dirname, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Config } from './environment.ts';
import { BYTE_UNITS, DURATION_UNITS } from './value-forms.ts';
import { SETTINGS, type Setting, type SettingKey } from './settings.ts';

/** One setting as it may be shown: a secret's value never gets here. */
export interface ShownSetting {
  readonly name: string;
  readonly value: string | null;
  readonly isSecret: boolean;
  readonly origin: string;
  readonly help: string;
}

const MASK = '***';

export function shownSettings(config: Config): readonly ShownSetting[] {
  const all = Object.entries(SETTINGS) as [SettingKey, Setting<unknown>][];
  return all.map(([key, setting]) => {
    const value: unknown = config[key];
    const isSecret = setting.secret === true;
    return {
      name: setting.name,
      value: value === undefined ? null : isSecret ? MASK : textOf(value, setting.accepted),
      isSecret,
      origin: originOf(key, setting, config),
      help: setting.help,
    };
  });
}

/** A command such as `demo` sets some itself, whatever was configured. */
function originOf(key: SettingKey, setting: Setting<unknown>, config: Config): string {
  const value: unknown = config[key];
  const origin = config.origins[key];
  if (origin === 'unset') return value === undefined ? origin : 'this command';
  if (origin !== 'default' || setting.fallback === undefined) return origin;
  const fallback = setting.parse(setting.fallback);
  // Read against the working directory, whichever that was.
  const asRead = key === 'dataDir' ? resolve(dirname(config.dataDir), setting.fallback) : fallback;
  return isDeepStrictEqual(value, asRead) ? origin : 'this command';
}

/** What a number counts is in the first words of what its setting accepts. */
const UNITS: Readonly<Record<string, readonly (readonly [unit: string, size: number])[]>> = {
  'a duration': Object.entries(DURATION_UNITS),
  'a size': Object.entries(BYTE_UNITS).filter(([unit]) => !/^.B$/.test(unit)),
};

/** In the largest unit that says it exactly. */
function withUnit(value: number, accepted: string): string {
  const units = Object.entries(UNITS).find(([words]) => accepted.startsWith(words))?.[1] ?? [];
  const [found] = units.filter(([, size]) => value % size === 0).toSorted(([, a], [, b]) => b - a);
  if (found !== undefined) return `${value / found[1]}${found[0]}`;
  return accepted.startsWith('a percentage') ? `${Number((value * 100).toFixed(4))}%` : String(value);
}

function textOf(value: unknown, accepted: string): string {
  if (value instanceof URL) return withoutSecrets(value);
  if (typeof value === 'number') return withUnit(value, accepted);
  if (value instanceof Map) return [...value].map(([name, given]) => `${name}=${given ?? 'none'}`).join(', ');
  if (Array.isArray(value)) return value.join(', ');
  if (typeof value === 'object' && value !== null && 'kind' in value) {
    return 'ids' in value && Array.isArray(value.ids) ? value.ids.join(', ') : String(value.kind);
  }
  return String(value);
}

/** Users write keys into URLs. A parameter of the object store is shown, save what it holds of a user. */
function withoutSecrets(url: URL): string {
  const shown = new URL(url);
  if (shown.username !== '') shown.username = MASK;
  if (shown.password !== '') shown.password = MASK;
  for (const [name, value] of url.searchParams) {
    const isPlain = !shown.protocol.startsWith('http') && !value.includes('@');
    const isUrl = !shown.protocol.startsWith('http') && URL.canParse(value);
    if (!isPlain) shown.searchParams.set(name, isUrl ? withoutSecrets(new URL(value)) : MASK);
  }
  return shown.href;
}
