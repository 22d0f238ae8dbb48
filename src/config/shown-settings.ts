/** The resolved configuration as the console and `config` show it: each value, where it came from, no secret. */
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
    const { name, key, help, secret: isSecret = false } = setting;
    const value: unknown = config[key];
    const shown = value === undefined ? null : isSecret ? MASK : textOf(value, setting);
    return { name, value: shown, isSecret, origin: config.origins[key], help };
  });
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
