/** What is set, and completion for the shell. */
import { Argument, type Command } from 'commander';
import { completionScript, SHELLS, type CompletionCommand, type Shell } from '../completion.ts';
import type { CommandContext } from '../context.ts';
import type { Run } from '../execute.ts';

export function declareShell(program: Command, run: Run, stdout: CommandContext['stdout']): void {
  program
    .command('config')
    .description('what is set, and where each value comes from; secrets are masked')
    .action((options) => run(async () => (await import('../commands/config.ts')).config, options));
  program
    .command('completion')
    .description('print a completion script')
    .addArgument(new Argument('<shell>', 'the shell that reads the script').choices(SHELLS))
    .action((shell: Shell) => {
      stdout.write(completionScript(shell, completionCommands(program)));
    });
}

function completionCommands(program: Command): readonly CompletionCommand[] {
  return program.commands.map((command) => ({
    name: command.name(),
    description: command.description(),
    options: command.options.flatMap(({ long, description }) =>
      typeof long === 'string' ? [{ flag: long, description }] : [],
    ),
    words: [
      ...command.commands.map((below) => below.name()),
      ...(command.registeredArguments[0]?.argChoices ?? []),
    ],
  }));
}
