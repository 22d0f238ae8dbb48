/**
 * Completion scripts for bash, zsh and fish, made from the declared commands and their
 * options.
 */
import type { Command } from 'commander';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;

/**
 * @returns a script that the shell reads, for example by `source <(ledger-mirror
 *   completion bash)`
 */
export function completionScript(
  shell: (typeof SHELLS)[number],
  program: Command,
): string {
  if (shell === 'fish')
    return `${program.commands.flatMap((command) => fish(command, program)).join('\n')}\n`;
  return shell === 'bash'
    ? bash(program)
    : `autoload -U +X bashcompinit && bashcompinit\n${bash(program)}`;
}

/**
 * What can follow a command: commands below it, the words of its first argument, and
 * flags.
 */
function wordsAfter({
  commands,
  registeredArguments: [first],
}: Command): readonly string[] {
  return [
    ...commands.map((below) => below.name()),
    ...(first?.argChoices ?? []),
  ];
}

function optionsOf(command: Command, program: Command) {
  return [...command.options, ...program.options].filter(
    ({ long }) => long !== '--version',
  );
}

/** zsh reads it, too. */
function bash(program: Command): string {
  const cases = program.commands.map((command) => {
    const words = [
      ...wordsAfter(command),
      ...optionsOf(command, program).map(({ long }) => long),
    ];
    return `    ${command.name()}) words='${words.join(' ')}' ;;`;
  });
  return `_ledger_mirror() {
  local words
  case "\${COMP_WORDS[1]}" in
${cases.join('\n')}
    *) words='' ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && words='${program.commands.map((command) => command.name()).join(' ')} --help --version'
  COMPREPLY=($(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _ledger_mirror ledger-mirror
`;
}

function fish(command: Command, program: Command): readonly string[] {
  const name = command.name();
  const words = wordsAfter(command);
  const after = `complete -c ledger-mirror -n '__fish_seen_subcommand_from ${name}'`;
  return [
    `complete -c ledger-mirror -f -n __fish_use_subcommand -a ${name} -d ` +
      quoteFish(command.description()),
    ...(words.length === 0 ? [] : [`${after} -f -a '${words.join(' ')}'`]),
    ...optionsOf(command, program).map(
      ({ long, description }) =>
        `${after} -l ${long?.slice(2)} -d ${quoteFish(description)}`,
    ),
  ];
}

function quoteFish(text: string): string {
  return `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`;
}
