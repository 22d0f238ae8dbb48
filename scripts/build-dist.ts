/**
 * Writes `dist/`: the sources with their types stripped. Only the package needs it,
 * because Node strips no types below node_modules. Lines and columns stay the same.
 *
 * Kysely is bundled into one file. Node takes 100 ms to load its 255 modules, each time a
 * command that opens the database starts; one file takes 7 ms.
 */
import {
  copyFile,
  mkdir,
  readdir,
  readFile,
  rm,
  writeFile,
} from 'node:fs/promises';
import { stripTypeScriptTypes } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const ROOT = resolve(import.meta.dirname, '..');
const SOURCES = ['src', 'jobs', 'migrations'];
/** Matches a relative path in quotes, in an import or as the script of a thread. */
const RELATIVE_TS = /(['"])((?:\.{1,2}\/)?[\w./-]+)\.ts\1/g;

/** The library that is bundled, and the path of the bundle below `dist/`. */
const BUNDLED = 'kysely';
const BUNDLE = 'bundled/kysely.js';

/** @returns JavaScript that imports JavaScript, with blanks in place of the types */
export function toJavaScript(source: string): string {
  return stripTypeScriptTypes(source, { mode: 'strip' }).replaceAll(
    RELATIVE_TS,
    '$1$2.js$1',
  );
}

/** Writes all files below `folder`, which is emptied first. */
export async function buildDist(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
  for (const name of SOURCES) {
    for (const entry of await readdir(join(ROOT, name), {
      recursive: true,
      withFileTypes: true,
    })) {
      if (!entry.isFile()) continue;
      const from = join(entry.parentPath, entry.name);
      const to = join(folder, from.slice(ROOT.length + 1));
      await mkdir(dirname(to), { recursive: true });
      if (!from.endsWith('.ts')) await copyFile(from, to);
      else
        await writeFile(
          to.replace(/ts$/, 'js'),
          importBundle(
            toJavaScript(await readFile(from, 'utf8')),
            relative(dirname(to), join(folder, BUNDLE)),
          ),
        );
    }
  }
  await bundleLibrary(join(folder, BUNDLE));
  const { name, version, type } = JSON.parse(
    await readFile(join(ROOT, 'package.json'), 'utf8'),
  ) as Record<string, string>;
  // The program reads its version from package.json in the folder above its sources,
  // so `dist/` needs one too.
  await writeFile(
    join(folder, 'package.json'),
    `${JSON.stringify({ name, version, type })}\n`,
  );
}

/** @param path of the bundle, as seen from the folder of the script */
function importBundle(script: string, path: string): string {
  const target = path.startsWith('.') ? path : `./${path}`;
  return script.replaceAll(`from '${BUNDLED}'`, `from '${target}'`);
}

/** Writes the library as one file, under its licence. */
async function bundleLibrary(to: string): Promise<void> {
  const input = fileURLToPath(import.meta.resolve(BUNDLED));
  const licence = await readFile(
    join(ROOT, 'node_modules', BUNDLED, 'LICENSE'),
    'utf8',
  );
  const bundle = await rolldown({ input, platform: 'node' });
  await bundle.write({
    file: to,
    format: 'esm',
    postBanner: `/*!\n${licence.trim()}\n*/`,
  });
  await bundle.close();
}
