/**
 * `npm run release`: writes everything of a version below `release/`: the package, its
 * checksums and its notes. It publishes nothing; the last line shows how to.
 */
import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pack } from './package.ts';
import { expect, ROOT, runSteps, succeed } from './steps.ts';

const OUT = join(ROOT, 'release');
const { version } = JSON.parse(
  await readFile(join(ROOT, 'package.json'), 'utf8'),
) as {
  version: string;
};
const TARBALL = `ledger-mirror-${version}.tgz`;

/** @returns the section of the changelog for the version */
export function notesOf(changelog: string, wanted: string): string {
  const sections = changelog.split(/^## /m);
  const section = sections.find((text) => text.startsWith(`[${wanted}]`));
  if (section === undefined)
    throw new Error(
      `CHANGELOG.md has no section [${wanted}]; rename [Unreleased] and add the date`,
    );
  return section.slice(section.indexOf('\n')).trim();
}

if (import.meta.main) {
  await rm(OUT, { recursive: true, force: true });
  await mkdir(OUT);
  await runSteps([
    {
      name: 'nothing is uncommitted',
      run: async () => {
        const status = await succeed('git', ['status', '--porcelain']);
        expect(status === '', status);
      },
    },
    {
      name: `release notes of ${version}`,
      run: async () => {
        const changelog = await readFile(join(ROOT, 'CHANGELOG.md'), 'utf8');
        await writeFile(
          join(OUT, `notes-${version}.md`),
          `${notesOf(changelog, version)}\n`,
        );
      },
    },
    {
      name: 'the package installs and runs',
      run: async () => {
        await succeed('node', ['scripts/test-package.ts']);
      },
    },
    {
      name: `${TARBALL} and its sum`,
      run: async () => {
        await pack(OUT);
        const sum = createHash('sha256').update(
          await readFile(join(OUT, TARBALL)),
        );
        await writeFile(
          join(OUT, 'SHA256SUMS'),
          `${sum.digest('hex')}  ${TARBALL}\n`,
        );
      },
    },
  ]);
  if (process.exitCode === 0) {
    process.stdout.write(
      `Next: git tag v${version} && git push --tags, then upload release/* with the notes to the project's host.\n`,
    );
  }
}
