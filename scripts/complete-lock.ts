/**
 * Adds to package-lock.json the optional packages for other systems that the available
 * registry did not offer when the lock was written. npm leaves such packages out, and
 * `npm ci` then refuses the lock as incomplete. The entries have no integrity, because
 * they are fetched only on those systems.
 */
import { readFileSync, writeFileSync } from 'node:fs';

interface LockEntry {
  version?: string;
  optionalDependencies?: Record<string, string>;
  dev?: boolean;
  [key: string]: unknown;
}
interface Lock {
  packages: Record<string, LockEntry>;
}

const OS_BY_WORD: Record<string, string> = {
  android: 'android',
  darwin: 'darwin',
  freebsd: 'freebsd',
  openharmony: 'openharmony',
  openbsd: 'openbsd',
  netbsd: 'netbsd',
  sunos: 'sunos',
  aix: 'aix',
  win32: 'win32',
  windows: 'win32',
  linux: 'linux',
};
const CPU_WORDS = [
  'arm64',
  'x64',
  'ia32',
  'arm',
  'ppc64',
  's390x',
  'riscv64',
  'loong64',
  'wasm32',
  'mips64el',
];

const lock = JSON.parse(readFileSync('package-lock.json', 'utf8')) as Lock;

/** Returns what `name` resolves to from `at`, walking up the folders as Node does. */
function resolved(at: string, name: string): LockEntry | undefined {
  for (let folder = at; ;) {
    const found =
      lock.packages[`${folder === '' ? '' : `${folder}/`}node_modules/${name}`];
    if (found !== undefined) return found;
    if (folder === '') return undefined;
    const above = folder.lastIndexOf('node_modules/');
    folder = above <= 0 ? '' : folder.slice(0, above - 1);
  }
}

function exact(range: string): string {
  return range.replace(/^[\^~=v]+/, '');
}

function entryFor(
  name: string,
  range: string,
  dev: boolean,
): LockEntry | undefined {
  const words = name.split(/[-/]/);
  const os = words
    .map((word) => OS_BY_WORD[word])
    .find((found) => found !== undefined);
  if (os === undefined) return undefined;
  const cpu =
    words.find((word) => CPU_WORDS.includes(word)) ??
    (words.includes('ppc64le') ? 'ppc64' : undefined);
  return {
    version: exact(range),
    ...(cpu === undefined ? {} : { cpu: [cpu] }),
    ...(dev ? { dev: true } : {}),
    ...(words.includes('musl') ? { libc: ['musl'] } : {}),
    optional: true,
    os: [os],
  };
}

let added = 0;
for (const [at, parent] of Object.entries({ ...lock.packages })) {
  for (const [name, range] of Object.entries(
    parent.optionalDependencies ?? {},
  )) {
    const locked = resolved(at, name);
    if (
      locked?.version !== undefined &&
      (locked.version === exact(range) || exact(range) !== range)
    )
      continue;
    const entry = entryFor(name, range, parent.dev === true);
    if (entry === undefined) {
      process.stderr.write(
        `left alone, its name tells no system: ${name} ${range}\n`,
      );
      continue;
    }
    // The top folder, unless it already has another parent's version.
    lock.packages[
      `${locked === undefined ? '' : `${at}/`}node_modules/${name}`
    ] = entry;
    added += 1;
  }
}
lock.packages = Object.fromEntries(
  Object.entries(lock.packages).toSorted(([a], [b]) =>
    a.localeCompare(b, 'en'),
  ),
);
writeFileSync('package-lock.json', `${JSON.stringify(lock, null, 2)}\n`);
process.stdout.write(
  `package-lock.json: ${added} packages for other systems added\n`,
);
