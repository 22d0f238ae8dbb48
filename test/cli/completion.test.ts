/** Completion scripts, and the bash one as bash runs it. */
import { execFileSync } from 'node:child_process';
import { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { completionScript, SHELLS } from '../../src/cli/completion.ts';
import { printed } from '../support/printed.ts';

/** What bash offers once these words are typed, the last of them unfinished. */
function offered(script: string, ...typed: readonly string[]): string[] {
  const words = ['ledger-mirror', ...typed]
    .map((word) => `'${word}'`)
    .join(' ');
  const probe = `${script}\nCOMP_WORDS=(${words}); COMP_CWORD=${typed.length}; _ledger_mirror; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync('bash', ['-c', probe], { encoding: 'utf8' })
    .split('\n')
    .filter(Boolean);
}

describe('completion', () => {
  test('bash completes commands, their options and the words that they take', async () => {
    const script = await printed('completion', 'bash');
    expect(offered(script, 'ex')).toEqual(['export']);
    expect(offered(script, 'export', '--f')).toEqual(['--from']);
    expect(offered(script, 'sync', 'ch')).toEqual(['checkpoints']);
    expect(offered(script, 'lake', 're')).toEqual(['restore']);
    expect(offered(script, 'completion', '')).toEqual(
      expect.arrayContaining(['bash', 'zsh', 'fish', '--json', '--quiet']),
    );
  });

  test.each(SHELLS)(
    '%s knows every command that --help lists',
    async (shell) => {
      const script = await printed('completion', shell);
      const help = await printed('--help');
      const commands = [...help.matchAll(/^ {2}([a-z]+) (?:.*?) {2}/gm)].map(
        ([, name]) => name,
      );
      expect(commands.length).toBeGreaterThan(15);
      for (const name of commands.filter((one) => one !== 'help'))
        expect(script).toContain(name);
    },
  );

  test('zsh and fish know what an option means, and which values it takes', async () => {
    const zsh = await printed('completion', 'zsh');
    expect(zsh).toContain("'--month:a whole month, such as 2026-03'");
    expect(zsh).toContain('--format) values=(table csv json ndjson parquet)');
    const fish = await printed('completion', 'fish');
    expect(fish).toContain("-l month -r -d 'a whole month, such as 2026-03'");
    expect(fish).toContain("-l format -x -a 'table csv json ndjson parquet'");
  });

  test('a description with quotes ends no word of zsh early', () => {
    const program = new Command('ledger-mirror');
    program.command('odd').option('--how', "party's [id]: which");
    expect(completionScript('zsh', program)).toContain(
      String.raw`'--how:party'\''s [id]: which'`,
    );
  });

  test('a description with quotes ends no word of fish early', () => {
    const program = new Command('ledger-mirror');
    program
      .command('odd')
      .description("it's [odd]: really")
      .option('--how', "party's [id]: which");
    expect(completionScript('fish', program)).toContain(
      String.raw`-d 'it\'s [odd]: really'`,
    );
  });
});
