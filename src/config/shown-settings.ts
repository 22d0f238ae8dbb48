/** The resolved configuration as the console and `config` show it: each value, where it came from, no secret. */
import { dirname, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { Config } from './environment.ts';
import { SETTINGS, type Setting } from './settings.ts';

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
  return SETTINGS.map((setting) => {
    const value: unknown = config[setting.key];
    const isSecret = setting.secret === true;
    return {
      name: setting.name,
      value: value === undefined ? null : isSecret ? MASK : textOf(value, setting),
      isSecret,
      origin: originOf(setting, config),
      help: setting.help,
    };
  });
}

/** A command such as `demo` sets some itself, whatever was configured. */
function originOf(setting: Setting, config: Config): string {
  const { key } = setting;
  const value: unknown = config[key];
  const origin = config.origins[key];
  if (origin === 'unset') return value === undefined ? origin : 'this command';
  if (origin !== 'default' || setting.fallback === undefined) return origin;
  const fallback = setting.parse(setting.fallback);
  // Read against the working directory, whichever that was.
  const asRead = key === 'dataDir' ? resolve(dirname(config.dataDir), setting.fallback) : fallback;
  return isDeepStrictEqual(value, asRead) ? origin : 'this command';
}

function textOf(value: unknown, setting: Setting): string {
  if (value instanceof URL) return withoutSecrets(value);
  if (setting.show !== undefined) return setting.show(value);
  return Array.isArray(value) ? value.join(', ') : String(value);
}

/** Users write keys into URLs. A parameter of the object store is shown, save what it holds of a user. */
function withoutSecrets(url: URL): string {
  const shown = new URL(url);
  if (shown.username !== '') shown.username = MASK;
  if (shown.password !== '') shown.password = MASK;
  const isWeb = shown.protocol.startsWith('http');
  for (const [name, value] of url.searchParams) {
    if (!isWeb && !value.includes('@')) continue;
    const isUrl = !isWeb && URL.canParse(value);
    shown.searchParams.set(name, isUrl ? withoutSecrets(new URL(value)) : MASK);
  }
  return shown.href;
}
