/** What `--help` says below the commands: every setting, from the declared table, and the exit codes. */
import { SETTINGS, type Setting } from '../config/settings.ts';
import { EXIT, type ExitCode } from './context.ts';

/** What each exit code tells a script. */
export const EXIT_CODES: readonly (readonly [code: ExitCode, meaning: string])[] = [
  [EXIT.done, 'done, verdict complete'],
  [EXIT.wrong, 'wrong usage or configuration, or a bug'],
  [EXIT.verdict, 'ended with another verdict: incomplete, suspicious or failed'],
  [EXIT.tryAgain, 'a service could not be reached for 60 s, or told to stop while waiting: try again'],
];

const NAME_CHARACTERS = 29;

/** @returns the lines that follow the list of commands */
export function settingsHelp(): string {
  const secrets = SETTINGS.filter((setting) => setting.secret === true).map((setting) => setting.name);
  return [
    '',
    "Settings (environment, or '.env' in the working directory; an empty value counts as unset):",
    ...SETTINGS.flatMap(settingLines),
    '',
    `Secrets, never shown or stored; each can come from a file named by …_FILE: ${secrets.join(', ')}`,
    '',
    'Exit codes:',
    ...EXIT_CODES.map(([code, meaning]) => `  ${String(code).padEnd(4)}${meaning}`),
    '',
  ].join('\n');
}

function settingLines(setting: Setting): string[] {
  const fallback = setting.fallback === undefined ? '' : ` (default ${setting.fallback})`;
  return [
    `  ${setting.name.padEnd(NAME_CHARACTERS)}${setting.help}`,
    `  ${' '.repeat(NAME_CHARACTERS)}  ${setting.accepted}${fallback}`,
  ];
}
