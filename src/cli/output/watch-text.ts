/** Shows a string again whenever it changes, until the command is stopped. */
import { setTimeout as sleep } from 'node:timers/promises';
import { errorLine } from '../../errors/errors.ts';
import { hideSecrets } from '../../secrets/secret-masking.ts';
import type { CommandContext } from '../context.ts';
import { nameCommands } from '../command-name.ts';

const LOOK_EVERY_MS = 1_000;
/** Moves the cursor to the upper left corner, and clears the screen. */
const CLEAR = '\u001B[H\u001B[2J';

/**
 * Calls `look` every second and shows the text if it has changed. On a terminal, each
 * text replaces the previous one. Elsewhere it is appended, so that a file or a pipe
 * receives every text. If a call fails, its error is shown instead and the next call
 * tries again, so that a database outage of a minute does not end the command.
 */
export async function watchText(
  look: () => Promise<string>,
  { stdout, signal: told }: Pick<CommandContext, 'stdout' | 'signal'>,
): Promise<void> {
  const unread = new AbortController();
  // A reader such as `head` may close the pipe early.
  const stop = (): void => unread.abort();
  stdout.once('error', stop);
  const signal = AbortSignal.any([told, unread.signal]);
  let shown: string | undefined;
  while (!signal.aborted) {
    const text = await look().catch(
      (error: unknown) => `${errorLine(error)}; trying again\n`,
    );
    if (text !== shown) {
      const safe = nameCommands(hideSecrets(text));
      stdout.write(stdout.isTTY === true ? `${CLEAR}${safe}` : `${safe}\n`);
    }
    shown = text;
    await sleep(LOOK_EVERY_MS, undefined, { signal }).catch(() => undefined);
  }
  stdout.off('error', stop);
}
