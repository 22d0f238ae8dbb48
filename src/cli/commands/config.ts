/** `config`: every setting as it is in force, and where its value comes from. Secrets are masked. */
import { shownSettings } from '../../config/shown-settings.ts';
import { EXIT, type CommandContext, type CommandResult } from '../context.ts';
import { formatTable } from '../output/table.ts';

/** @returns at once: no service is asked */
export function config(_options: unknown, { config: given }: CommandContext): Promise<CommandResult> {
  const settings = shownSettings(given);
  const rows = settings.map(({ name, value, origin }) => [name, value, origin]);
  return Promise.resolve({
    exitCode: EXIT.done,
    document: settings.map(({ name, value, isSecret, origin }) => ({ name, value, isSecret, origin })),
    text: formatTable(['setting', 'value', 'from'], rows),
  });
}
