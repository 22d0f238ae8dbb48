/** Completion scripts for bash, zsh and fish, made from the declared commands and their options. */
import type { Command } from 'commander';

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

/** What can be typed: names are words without spaces or quotes. */
export interface CompletionCommand {
  readonly name: string;
  readonly description: string;
  /** Long flags, `--json`. */
  readonly options: readonly { readonly flag: string; readonly description: string }[];
  /** Words that its first argument can be; empty where it is free. */
  readonly words: readonly string[];
}

/** @returns a script that the shell reads, for example by `source <(ledger-mirror completion bash)` */
export function completionScript(shell: Shell, commands: readonly CompletionCommand[]): string {
  return { bash, zsh, fish }[shell](commands);
}

export function completionCommands(program: Command): readonly CompletionCommand[] {
  return program.commands.map((command) => ({
    name: command.name(),
    description: command.description(),
    options: [...command.options, ...program.options.filter(({ long }) => long !== '--version')].flatMap(
      ({ long, description }) => (typeof long === 'string' ? [{ flag: long, description }] : []),
    ),
    words: [
      ...command.commands.map((below) => below.name()),
      ...(command.registeredArguments[0]?.argChoices ?? []),
    ],
  }));
}

function bash(commands: readonly CompletionCommand[]): string {
  const cases = commands.map(({ name, words, options }) => {
    const after = [...words, ...options.map(({ flag }) => flag)];
    return `    ${name}) words='${after.join(' ')}' ;;`;
  });
  return `_ledger_mirror() {
  local words
  case "\${COMP_WORDS[1]}" in
${cases.join('\n')}
    *) words='' ;;
  esac
  [ "$COMP_CWORD" -eq 1 ] && words='${commands.map(({ name }) => name).join(' ')} --help --version'
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "\${COMP_WORDS[COMP_CWORD]}")
}
complete -o default -F _ledger_mirror ledger-mirror
`;
}

function zsh(commands: readonly CompletionCommand[]): string {
  const described = commands.map(({ name, description }) => `    '${name}:${escapeZsh(description)}'`);
  const cases = commands.map(({ name, options, words }) => {
    const specs = options.map(({ flag, description }) => `'${flag}[${escapeZsh(description)}]'`);
    const first = words.length === 0 ? `'*:file:_files'` : `'1:word:(${words.join(' ')})'`;
    return `    ${name}) _arguments ${[...specs, first].join(' ')} ;;`;
  });
  return `#compdef ledger-mirror
_ledger_mirror() {
  local -a commands
  commands=(
${described.join('\n')}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  shift words
  (( CURRENT-- ))
  case "$words[1]" in
${cases.join('\n')}
  esac
}
compdef _ledger_mirror ledger-mirror
`;
}

/** Brackets, colons and quotes have a meaning in a zsh specification. */
function escapeZsh(text: string): string {
  return text.replaceAll(/[[\]:]/g, String.raw`\$&`).replaceAll("'", String.raw`'\''`);
}

function fish(commands: readonly CompletionCommand[]): string {
  const lines = commands.flatMap(({ name, description, options, words }) => {
    const after = `complete -c ledger-mirror -n '__fish_seen_subcommand_from ${name}'`;
    return [
      `complete -c ledger-mirror -f -n __fish_use_subcommand -a ${name} -d ${quoteFish(description)}`,
      ...(words.length === 0 ? [] : [`${after} -f -a '${words.join(' ')}'`]),
      ...options.map((option) => `${after} -l ${option.flag.slice(2)} -d ${quoteFish(option.description)}`),
    ];
  });
  return `${lines.join('\n')}\n`;
}

function quoteFish(text: string): string {
  return `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`;
}
