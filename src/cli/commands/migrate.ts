/** `migrate`: brings the warehouse's schema forward; every command does so when it starts. */
import { openApp } from '../../app/app.ts';
import { EXIT, type CommandContext, type CommandResult } from '../context.ts';

export async function migrateCommand(_options: object, context: CommandContext): Promise<CommandResult> {
  await using app = await openApp(context);
  const { migrated } = app;
  const text = migrated.length === 0 ? 'The database is up to date.\n' : `Migrated: ${migrated.join(', ')}\n`;
  return { exitCode: EXIT.done, document: { migrated }, text };
}
