/** Reads the file of a secret again, for a process whose secret was refused. */
import { readFileSync } from 'node:fs';
import { rememberSecrets } from '../secrets/secret-masking.ts';
import { decodeText } from './dot-env.ts';
import type { Config } from './environment.ts';
import { secretsOf } from './secrets.ts';
import { SETTINGS, type SettingKey } from './settings.ts';

const OF_FILE = 'file ';

/**
 * Reads a setting's file again, and masks the new value wherever it might be shown.
 * @returns undefined if the setting does not come from a file, or if the file cannot be
 *   read or its value is not accepted
 */
export function readSecretAgain<Key extends SettingKey>(
  config: Config,
  key: Key,
): Config[Key] | undefined {
  const path = pathOf(config, key);
  const setting = SETTINGS.find((one) => one.key === key);
  if (path === undefined || setting === undefined) return undefined;
  let text: string | undefined;
  try {
    text = decodeText(readFileSync(path))?.trim();
  } catch {
    // The file is being replaced or no longer exists, so there is no newer secret than
    // the refused one.
    return undefined;
  }
  // A file that is being written may be empty for a moment.
  if (text === undefined || text === '') return undefined;
  const value = setting.parse(text) as Config[Key] | undefined;
  if (value !== undefined)
    rememberSecrets(secretsOf({ ...config, [key]: value }));
  return value;
}

/** Whether the setting comes from a file, whose content may change. */
export function isSecretOfFile(config: Config, key: SettingKey): boolean {
  return pathOf(config, key) !== undefined;
}

/**
 * Names the setting for an operator: `API_TOKEN`, or `API_TOKEN_FILE
 * (/run/secrets/token)`.
 */
export function nameOfSecret(config: Config, key: SettingKey): string {
  const name = SETTINGS.find((one) => one.key === key)?.name ?? key;
  const path = pathOf(config, key);
  return path === undefined ? name : `${name}_FILE (${path})`;
}

function pathOf(config: Config, key: SettingKey): string | undefined {
  const origin = config.origins[key];
  return origin.startsWith(OF_FILE) ? origin.slice(OF_FILE.length) : undefined;
}
