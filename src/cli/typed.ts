/**
 * Formats commands and paths the way a user types them in this process's working
 * directory.
 */
import { relative } from 'node:path';

/**
 * How a user starts this program. A checkout runs the TypeScript sources and needs npx; a
 * package is compiled and has the command on the path.
 */
export const COMMAND = import.meta.filename.endsWith('.ts')
  ? 'npx ledger-mirror'
  : 'ledger-mirror';

/**
 * Replaces the plain `ledger-mirror` in messages, as in `ledger-mirror status`, by the
 * command that the user has to type.
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

/**
 * Returns the path relative to the working directory, or unchanged if it is outside of
 * it.
 */
export function near(path: string): string {
  const fromHere = relative(process.cwd(), path) || '.';
  return fromHere.startsWith('..') ? path : fromHere;
}
