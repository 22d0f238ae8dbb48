/**
 * Completion scripts for bash, zsh and fish, generated from the declared commands and
 * their options.
 */
// cspell:ignore compdef compinit
import type { Command, Option } from 'commander';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;

/**
 * Returns a script for the shell to load, for example with `source <(ledger-mirror
 * completion bash)`.
 */
export function completionScript(
  shell: (typeof SHELLS)[number],
  program: Command,
): string {
  return { bash, zsh, fish }[shell](program);
}

/** A word that may be typed. The meaning is empty if the word is self-explanatory. */
interface Word {
  readonly word: string;
  readonly meaning: string;
}

/** Returns the subcommands of a command, and the choices of its first argument. */
function wordsAfter({
  commands,
  registeredArguments: [first],
}: Command): readonly Word[] {
  return [
    ...commands.map((below) => ({
      word: below.name(),
      meaning: below.description(),
    })),
    ...(first?.argChoices ?? []).map((word) => ({ word, meaning: '' })),
  ];
}

function optionsOf(command: Command, program: Command): readonly Option[] {
  return [...command.options, ...program.options].filter(
    ({ long }) => long !== '--version',
  );
}

function bash(program: Command): string {
  const cases = program.commands.map((command) => {
    const words = [
      ...wordsAfter(command).map(({ word }) => word),
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

/**
 * Returns a completion function for zsh's native completion system, which shows what each
 * word means.
 */
function zsh(program: Command): string {
  const commands = program.commands.map((command) => ({
    word: command.name(),
    meaning: command.description(),
  }));
  const cases = program.commands.map((command) => {
    const options = optionsOf(command, program);
    const flags = options.map(({ long, description }) => ({
      word: long ?? '',
      meaning: description,
    }));
    const chosen = options.flatMap(({ long, argChoices }) =>
      argChoices === undefined
        ? []
        : `        ${long}) values=(${argChoices.join(' ')}) ;;`,
    );
    return `    ${command.name()})
      words_of=(${describedForZsh(wordsAfter(command))})
      flags=(${describedForZsh(flags)})
      case $words[CURRENT-1] in
${[...chosen, `        *) ;;`].join('\n')}
      esac
      ;;`;
  });
  return `#compdef ledger-mirror
_ledger_mirror() {
  local -a words_of flags values
  if (( CURRENT == 2 )); then
    words_of=(${describedForZsh(commands)})
    flags=('--help:show the commands' '--version:show the version')
  fi
  (( CURRENT > 2 )) && case $words[2] in
${cases.join('\n')}
  esac
  if (( $#values )); then
    _describe value values
  elif [[ $PREFIX == -* ]]; then
    _describe -o option flags
  else
    (( $#words_of )) && _describe word words_of
    (( CURRENT > 2 )) && _files
  fi
}
# A shell that only reads this file may not have started its completion system.
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -u; }
compdef _ledger_mirror ledger-mirror
`;
}

/** Formats the array elements that `_describe` expects, each as `word:meaning`. */
function describedForZsh(words: readonly Word[]): string {
  return words
    .map(({ word, meaning }) => `${word.replaceAll(':', '\\:')}:${meaning}`)
    .map((text) => `'${text.replaceAll("'", `'\\''`)}'`)
    .join(' ');
}

function fish(program: Command): string {
  return `${program.commands
    .flatMap((command) => fishLines(command, program))
    .join('\n')}\n`;
}

function fishLines(command: Command, program: Command): readonly string[] {
  const name = command.name();
  const after = `complete -c ledger-mirror -n '__fish_seen_subcommand_from ${name}'`;
  return [
    `complete -c ledger-mirror -f -n __fish_use_subcommand -a ${name} -d ` +
      quoteFish(command.description()),
    ...wordsAfter(command).map(
      ({ word, meaning }) =>
        `${after} -f -a ${word}${meaning === '' ? '' : ` -d ${quoteFish(meaning)}`}`,
    ),
    ...optionsOf(command, program).map(
      (option) =>
        `${after} -l ${option.long?.slice(2)}${fishValue(option)} -d ` +
        quoteFish(option.description),
    ),
  ];
}

/**
 * Returns fish's flags for an option's value: `-r` for any value, including a file name;
 * `-x` for one of the listed choices.
 */
function fishValue({ required, argChoices }: Option): string {
  if (argChoices !== undefined) return ` -x -a '${argChoices.join(' ')}'`;
  return required ? ' -r' : '';
}

function quoteFish(text: string): string {
  return `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`;
}
