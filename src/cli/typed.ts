/**
 * Commands and paths as they are typed in the folder that this process was started in.
 */
import { relative } from 'node:path';

/**
 * How a reader calls this program. A checkout runs its sources, and has the command
 * behind npx; a package is compiled.
 */
export const COMMAND = import.meta.filename.endsWith('.ts')
  ? 'npx ledger-mirror'
  : 'ledger-mirror';

/**
 * Messages name commands in quotes, as `ledger-mirror status`; here they are as they are
 * typed.
 */
export function nameCommands(message: string): string {
  return message.replaceAll(
    /(?<=['`])ledger-mirror (?=[a-z-])/g,
    `${COMMAND} `,
  );
}

/** As it is typed in a shell, for the mirror in this folder. */
export function commandOn(dataDir: string): string {
  return `DATA_DIR='${near(dataDir)}' ${COMMAND}`;
}

/** A path as it is typed in that folder. */
export function near(path: string): string {
  const fromHere = relative(process.cwd(), path) || '.';
  return fromHere.startsWith('..') ? path : fromHere;
}
