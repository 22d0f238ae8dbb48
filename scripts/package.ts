/**
 * `npm run package [-- FOLDER]`: builds the package as users install it. `npm pack` alone
 * would leave out `dist/`: `.npmrc` disables lifecycle scripts, so this command does what
 * a hook would do.
 */
import { rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { buildDist } from './build-dist.ts';
import { ROOT, succeed } from './steps.ts';

export interface Packed {
  readonly filename: string;
  readonly size: number;
  readonly files: readonly { readonly path: string }[];
}

export async function pack(folder: string): Promise<Packed> {
  const dist = join(ROOT, 'dist');
  try {
    await buildDist(dist);
    const text = await succeed('npm', [
      'pack',
      '--json',
      '--pack-destination',
      folder,
    ]);
    const [packed] = JSON.parse(text) as [Packed];
    return packed;
  } finally {
    await rm(dist, { recursive: true, force: true });
  }
}

if (import.meta.main)
  process.stdout.write(
    `${(await pack(resolve(process.argv[2] ?? '.'))).filename}\n`,
  );
