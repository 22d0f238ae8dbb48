/**
 * Runs benchmarks by name, or all of them: `npm run bench [-- lists load api …]
 * [--quick]`. Arguments that are not names are passed to each benchmark. Each file of
 * `bench/` is a benchmark; its folders contain the parts that they share.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';

const FOLDER = resolve(import.meta.dirname, '../bench');
/**
 * The flags that `bin/ledger-mirror.js` gives the product, because much of what is
 * measured runs in the benchmark's own process.
 */
const FLAGS = ['--max-semi-space-size=4', '--heap-growing-percent=100'];
const env = { MALLOC_ARENA_MAX: '2', ...process.env };

const files = await readdir(FOLDER);
const names = files
  .filter((file) => file.endsWith('.ts'))
  .map((file) => file.slice(0, -'.ts'.length));
const given = process.argv.slice(2);
const chosen = names.filter((name) => given.includes(name));
const rest = given.filter((word) => !names.includes(word));

for (const name of chosen.length === 0 ? names : chosen) {
  process.stdout.write(
    `\n## ${name}\n\n| what | value | wanted |\n|---|---|---|\n`,
  );
  const script = [join(FOLDER, `${name}.ts`), ...rest];
  const child = spawn(process.execPath, [...FLAGS, ...script], {
    stdio: 'inherit',
    env,
  });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) process.exitCode = 1;
}
