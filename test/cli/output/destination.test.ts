import { readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import {
  outputProblems,
  writeOutput,
} from '../../../src/cli/output/destination.ts';
import { scratchFolder } from '../../../src/lake/local/scratch.ts';
import { tmpdir } from 'node:os';

const { signal } = new AbortController();

describe('the destination of a command', () => {
  test('is refused with the option where it cannot even be looked at', async () => {
    await using folder = await scratchFolder(tmpdir());
    const path = join(folder.path, 'x'.repeat(300));
    expect(outputProblems('--out', path)).toEqual([
      `--out: cannot write ${path} (ENAMETOOLONG); name a file in a folder that exists`,
    ]);
  });

  test('is written beside what a killed process, or somebody, left under the name of the part', async () => {
    await using folder = await scratchFolder(tmpdir());
    const path = join(folder.path, 'out.csv');
    const stranger = join(folder.path, 'stranger');
    await writeFile(stranger, 'theirs');
    await symlink(stranger, `${path}.partial-${process.pid}`);
    await writeOutput(
      path,
      signal,
      async (output) => void output.write('ours'),
    );
    expect([
      await readFile(path, 'utf8'),
      await readFile(stranger, 'utf8'),
    ]).toEqual(['ours', 'theirs']);
  });
});
