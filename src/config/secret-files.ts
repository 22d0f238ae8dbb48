/** Rereads a secret's file after a service has refused the current secret. */
import { readFileSync } from 'node:fs';
import { rememberSecrets } from '../secrets/secret-masking.ts';
import { decodeText } from './dot-env.ts';
import type { Config } from './environment.ts';
import { secretsOf } from './secrets.ts';
import { SETTINGS, type SettingKey } from './settings.ts';

const OF_FILE = 'file ';

/**
 * Rereads a setting's file, and registers the new value for masking.
 * @returns undefined if the setting does not come from a file, or if the file cannot be
 *   read or has an invalid value
 */
export function readSecretAgain<Key extends SettingKey>(
  config: Config,
  key: Key,
): Config[Key] | undefined {
  const path = pathOfSecret(config, key);
  const setting = SETTINGS.find((one) => one.key === key);
  if (path === undefined || setting === undefined) return undefined;
  let text: string | undefined;
  try {
    text = decodeText(readFileSync(path))?.trim();
  } catch {
    // The file is being replaced or no longer exists, so no newer secret is available.
    return undefined;
  }
  // A file may be empty for a moment while it is being written.
  if (text === undefined || text === '') return undefined;
  const value = setting.parse(text) as Config[Key] | undefined;
  if (value !== undefined)
    rememberSecrets(secretsOf({ ...config, [key]: value }));
  return value;
}

/** Whether the setting comes from a file, so its value may change. */
export function isSecretOfFile(config: Config, key: SettingKey): boolean {
  return pathOfSecret(config, key) !== undefined;
}

/**
 * Returns the setting's name for messages: `API_TOKEN`, or `API_TOKEN_FILE
 * (/run/secrets/token)`.
 */
export function nameOfSecret(config: Config, key: SettingKey): string {
  const name = SETTINGS.find((one) => one.key === key)?.name ?? key;
  const path = pathOfSecret(config, key);
  return path === undefined ? name : `${name}_FILE (${path})`;
}

/** Returns the path of a setting's file; undefined if the setting has none. */
export function pathOfSecret(
  config: Config,
  key: SettingKey,
): string | undefined {
  const origin = config.origins[key];
  return origin.startsWith(OF_FILE) ? origin.slice(OF_FILE.length) : undefined;
}
