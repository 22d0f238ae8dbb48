/** What zsh and fish offer at a terminal once they have read their completion script. */
// cspell:ignore zmodload zpty stty compinit
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify, stripVTControlCharacters } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { printed } from '../support/printed.ts';

const run = promisify(execFile);
const isZshThere = await isInstalled('zsh');
const isFishThere = await isInstalled('fish');

/** Types a line and two tabs into a zsh of its own, and prints what stands on its screen. */
const TYPE_INTO_ZSH = `
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PROMPT=; stty -echo cols 200 rows 60"
zpty -w shell "autoload -Uz compinit; compinit -u -D; source $1; echo LOA''DED"
while zpty -r shell line; do [[ $line == *LOADED* ]] && break; done
zpty -w -n shell "$2"$'\\t\\t'
for (( tries = 0; tries < 100; tries += 1 )); do
  while zpty -r -t shell line; do shown+=$line; done
  [[ $shown == *$3* ]] && break
  sleep 0.1
done
print -r -- $shown
zpty -d shell
`;

describe.skipIf(!isZshThere)('zsh', () => {
  test.each([
    ['ledger-mirror query --', '--month', 'a month, such as 2026-03'],
    ['ledger-mirror lake ', 'vacuum', 'remove what no version names any more'],
    ['ledger-mirror ', 'check-proof', 'check a proof, without the mirror'],
    ['ledger-mirror query --format ', 'ndjson', ''],
  ])(
    'offers after %j what is meant, with its meaning',
    async (typed, word, meaning) => {
      const folder = await folderOfTest();
      const script = join(folder, '_ledger-mirror');
      await writeFile(script, await printed('completion', 'zsh'));
      const typing = join(folder, 'type.zsh');
      await writeFile(typing, TYPE_INTO_ZSH);
      const args = ['-f', typing, script, typed, meaning || word];
      const { stdout } = await run('zsh', args, { cwd: folder });
      const shown = stripVTControlCharacters(stdout);
      expect(shown).toContain(word);
      expect(shown).toContain(meaning);
    },
  );
});

describe.skipIf(!isFishThere)('fish', () => {
  test.each([
    [
      'ledger-mirror query --mo',
      '--month\tfor a ready question: a month, such as 2026-03',
    ],
    ['ledger-mirror lake v', 'vacuum\tremove what no version names any more'],
    ['ledger-mirror check', 'check-proof\tcheck a proof, without the mirror'],
    ['ledger-mirror query --format nd', 'ndjson'],
  ])(
    'offers after %j what is meant, with its meaning',
    async (typed, offered) => {
      const folder = await folderOfTest();
      const script = join(folder, 'ledger-mirror.fish');
      await writeFile(script, await printed('completion', 'fish'));
      const asked = 'source $argv[1]; complete -C $argv[2]';
      const { stdout } = await run('fish', ['-N', '-c', asked, script, typed], {
        env: { ...process.env, HOME: folder },
      });
      expect(stdout).toContain(offered);
    },
  );
});

/** Whether a shell is installed here; if not, that is said, and its tests are skipped. */
async function isInstalled(name: string): Promise<boolean> {
  try {
    await run(name, ['--version']);
    return true;
  } catch {
    process.stderr.write(
      `Not tested in these surroundings: ${name} (apt-get install ${name})\n`,
    );
    return false;
  }
}

async function folderOfTest(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-shell-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}
