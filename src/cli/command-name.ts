/**
 * Formats commands and paths as a user would type them in this process's working
 * directory.
 */
import { relative } from 'node:path';

/**
 * How a user starts this program. A checkout runs the TypeScript sources through npx; an
 * installed package is compiled and puts the command on the PATH.
 */
export const COMMAND = import.meta.filename.endsWith('.ts')
  ? 'npx ledger-mirror'
  : 'ledger-mirror';

/**
 * In messages, replaces `ledger-mirror`, as in `ledger-mirror status`, with the command
 * that the user has to type.
 */
export function nameCommands(message: string): string {
  return message.replaceAll(
    /(?<=['`])ledger-mirror (?=[a-z-])/g,
    `${COMMAND} `,
  );
}

/** Returns the command as typed in a shell, with DATA_DIR set to this mirror. */
export function commandOn(dataDir: string): string {
  return `DATA_DIR='${near(dataDir)}' ${COMMAND}`;
}

/** Returns the path relative to the working directory, or unchanged if it is outside. */
export function near(path: string): string {
  const fromHere = relative(process.cwd(), path) || '.';
  return fromHere.startsWith('..') ? path : fromHere;
}
