/**
 * Creates Python environments for commands that test this project with other projects'
 * tools. The tools' versions are pinned, and the environments are outside the project.
 */
import { existsSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { command } from './steps.ts';

const FOLDER =
  process.env['ENGINES_DIR'] ??
  join(homedir(), '.cache', 'ledger-mirror-engines');

/**
 * Creates the environment once, and marks it when it is complete.
 * @returns its `bin` folder, or the reason why it cannot be created
 */
export async function openVenv(
  name: string,
  packages: readonly string[],
): Promise<{ readonly bin: string } | { readonly missing: string }> {
  const folder = join(
    FOLDER,
    `${name}-${packages.join('_').replaceAll(/[^\w.-]/g, '')}`.slice(0, 200),
  );
  const bin = join(folder, 'bin');
  if (existsSync(join(folder, 'installed'))) return { bin };
  await rm(folder, { recursive: true, force: true });
  await mkdir(FOLDER, { recursive: true });
  const made = await command('python3', ['-m', 'venv', folder]);
  if (made.code !== 0) return { missing: made.output };
  const pip = [
    '-m',
    'pip',
    'install',
    '--quiet',
    '--disable-pip-version-check',
    ...packages,
  ];
  const installed = await command(join(bin, 'python'), pip);
  if (installed.code !== 0) return { missing: installed.output };
  await writeFile(join(folder, 'installed'), '');
  return { bin };
}
