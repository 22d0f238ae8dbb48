/**
 * `npm run test:engines [-- all | NAME …]`: other projects' engines read and change the
 * lake's tables. The engines are pinned and installed outside the project (ENGINES_DIR,
 * or the user's cache). Without names, only the engines that take a few seconds are run.
 * An engine that cannot be run is reported, and fails if it was requested by name.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { ROOT } from './steps.ts';
import { openVenv } from './venv.ts';

interface Engine {
  readonly packages: readonly string[];
  /** Whether it is quick enough for every run. */
  readonly isQuick: boolean;
}

const ENGINES: Readonly<Record<string, Engine>> = {
  deltalake: {
    packages: ['deltalake==1.6.6', 'pyarrow==25.0.0', 'pandas==3.0.6'],
    isQuick: true,
  },
  duckdb: {
    packages: [
      'duckdb==1.5.5',
      'duckdb-extension-delta==1.5.5',
      'duckdb-extension-httpfs==1.5.5',
    ],
    isQuick: true,
  },
  polars: {
    packages: ['polars==2.1.0', 'deltalake==1.6.6', 'pyarrow==25.0.0'],
    isQuick: false,
  },
  chdb: { packages: ['chdb==4.4.0'], isQuick: false },
  daft: {
    packages: ['daft[deltalake]==0.7.26', 'deltalake==1.6.6'],
    isQuick: false,
  },
  spark: { packages: ['pyspark==4.2.0'], isQuick: false },
};

async function run(
  command: string,
  args: readonly string[],
  env = process.env,
): Promise<boolean> {
  const child = spawn(command, args, { stdio: 'inherit', cwd: ROOT, env });
  const [code] = (await once(child, 'close').catch(() => [1])) as [
    number | null,
  ];
  return code === 0;
}

const given = process.argv.slice(2);
const unknown = given.filter(
  (name) => name !== 'all' && ENGINES[name] === undefined,
);
const isAsked = (name: string, { isQuick }: Engine): boolean =>
  given.length === 0 ? isQuick : given.includes('all') || given.includes(name);

const missing: string[] = [];
for (const [name, engine] of Object.entries(ENGINES)) {
  if (!isAsked(name, engine)) {
    process.stdout.write(
      `not run: ${name} (npm run test:engines -- ${name})\n`,
    );
    continue;
  }
  const venv = await openVenv(name, engine.packages);
  if ('bin' in venv)
    process.env[`ENGINE_${name.toUpperCase()}`] = join(venv.bin, 'python');
  else missing.push(name);
}
for (const name of missing)
  process.stdout.write(`could not be installed: ${name}\n`);
for (const name of unknown) process.stdout.write(`not known: ${name}\n`);

const isGreen = await run(process.execPath, [
  join(ROOT, 'node_modules/vitest/vitest.mjs'),
  'run',
  '--project',
  'engines',
]);
process.exitCode = isGreen && missing.length + unknown.length === 0 ? 0 : 1;
