/**
 * `npm run release`: writes the files of a version into `release/`: the package, the docs
 * as a site, the checksums of both, and the notes. It publishes nothing; its last line
 * shows how to do that.
 */
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pack } from './package.ts';
import { buildSite } from './site/build.ts';
import { expect, ROOT, runSteps, succeed } from './steps.ts';

const OUT = join(ROOT, 'release');
const { version } = JSON.parse(
  await readFile(join(ROOT, 'package.json'), 'utf8'),
) as {
  version: string;
};
const TARBALL = `ledger-mirror-${version}.tgz`;
/** The folder in the archive of the docs. */
const DOCS = `ledger-mirror-docs-${version}`;
const DOCS_ARCHIVE = `${DOCS}.tar.gz`;

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

/** Packs the site, with its folder, for people who read or serve the docs themselves. */
export async function packDocs(folder: string): Promise<void> {
  const scratch = await mkdtemp(join(tmpdir(), 'ledger-mirror-docs-'));
  try {
    await buildSite(join(scratch, DOCS));
    await succeed('tar', [
      '-czf',
      join(folder, DOCS_ARCHIVE),
      '-C',
      scratch,
      DOCS,
    ]);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** @returns the lines of a file for `sha256sum --check` */
async function sumsOf(names: readonly string[]): Promise<string> {
  const lines = names.map(async (name) => {
    const content = await readFile(join(OUT, name));
    const sum = createHash('sha256').update(content).digest('hex');
    return `${sum}  ${name}\n`;
  });
  return (await Promise.all(lines)).join('');
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
      name: DOCS_ARCHIVE,
      run: () => packDocs(OUT),
    },
    {
      name: `${TARBALL}, and the sums of both`,
      run: async () => {
        await pack(OUT);
        await writeFile(
          join(OUT, 'SHA256SUMS'),
          await sumsOf([TARBALL, DOCS_ARCHIVE]),
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
