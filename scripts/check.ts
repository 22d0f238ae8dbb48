/**
 * `npm run check`: every check of the tree that does not run the product. Prints one line
 * for each step with its duration, the output of a failing step below it, and `N passed,
 * N failed` at the end.
 */
import { spawn } from 'node:child_process';
import { copyFile, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

interface Outcome {
  readonly ok: boolean;
  /** Shown if the step failed. */
  readonly output: string;
}

interface Step {
  readonly name: string;
  readonly run: () => Promise<Outcome>;
}

const ROOT = resolve(import.meta.dirname, '..');
const STEP_TIMEOUT_MS = 5 * 60_000;
const OUTPUT_CHARACTERS_MAX = 20_000;
/**
 * Listed one by one, because a linter that is given the root also follows the root's
 * links.
 */
const LINTED = ['src', 'jobs', 'migrations', 'test', 'bench', 'scripts', 'bin'];
/** Printed, with exit code 0, when the type-aware half of the linter crashes. */
const LINTER_CRASH = 'Error running tsgolint';

const STEPS: readonly Step[] = [
  { name: 'types', run: () => command('tsc', ['-p', '.']) },
  { name: 'lint', run: lint },
  { name: 'format', run: () => command('oxfmt', ['--check', '.']) },
  { name: 'spelling', run: () => command('cspell', ['--no-progress', '.']) },
  { name: 'prose', run: () => command('node', ['scripts/check-prose.ts']) },
  { name: 'unused code', run: () => command('knip', []) },
  {
    name: 'import directions',
    run: () =>
      command('vitest', [
        'run',
        '--project',
        'unit',
        'test/architecture.test.ts',
      ]),
  },
  {
    name: 'docs of the source',
    run: () =>
      command('vitest', [
        'run',
        '--project',
        'unit',
        'test/config/documented.test.ts',
      ]),
  },
  { name: 'lock file', run: checkLock },
  { name: 'no registry in the tree', run: checkRegistries },
];

async function lint(): Promise<Outcome> {
  const first = await command('oxlint', LINTED);
  // A crash says nothing about the code, so the linter is run once more.
  const { ok, output } = first.output.includes(LINTER_CRASH)
    ? await command('oxlint', LINTED)
    : first;
  return { ok: ok && !output.includes(LINTER_CRASH), output };
}

/**
 * Checks that `npm ci` accepts the lock file in a folder with nothing else, as on a
 * newcomer's machine.
 */
async function checkLock(): Promise<Outcome> {
  const folder = await mkdtemp(join(tmpdir(), 'ledger-mirror-lock-'));
  try {
    const clone = await command('git', [
      'clone',
      '--quiet',
      '--depth=1',
      `file://${ROOT}`,
      folder,
    ]);
    if (!clone.ok) {
      // Without git or a checkout, copy just the three files that npm reads.
      for (const name of ['package.json', 'package-lock.json', '.npmrc']) {
        await copyFile(join(ROOT, name), join(folder, name));
      }
    }
    return await command(
      'npm',
      ['ci', '--dry-run', '--ignore-scripts'],
      folder,
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Checks that the lock and the settings name no registry: they would work only where that
 * registry can be reached.
 */
async function checkRegistries(): Promise<Outcome> {
  const lock = await readFile(join(ROOT, 'package-lock.json'), 'utf8');
  const npmrc = await readFile(join(ROOT, '.npmrc'), 'utf8');
  const problems: string[] = [];
  if (/^\s*"resolved":\s*"https?:/m.test(lock))
    problems.push('package-lock.json names where it fetched from');
  if (/registry\s*=/.test(npmrc)) problems.push('.npmrc names a registry');
  // Tarball addresses have this form in any registry, on any host.
  const found = await command('git', [
    'grep',
    '-lE',
    String.raw`https?://[^ "]+/-/[^ "]+\.tgz`,
    '--',
    '.',
  ]);
  if (found.ok)
    problems.push(
      `tarball addresses in: ${found.output.trim().replaceAll('\n', ', ')}`,
    );
  return { ok: problems.length === 0, output: problems.join('\n') };
}

/** Runs a tool from node_modules/.bin or the PATH, and keeps the end of its output. */
async function command(
  name: string,
  args: readonly string[],
  cwd = ROOT,
): Promise<Outcome> {
  const path = `${join(ROOT, 'node_modules/.bin')}:${process.env['PATH'] ?? ''}`;
  const child = spawn(name, args, {
    cwd,
    env: { ...process.env, PATH: path, NO_COLOR: '1', FORCE_COLOR: undefined },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: STEP_TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  let output = '';
  const keep = (text: string): void => {
    output = (output + text).slice(-OUTPUT_CHARACTERS_MAX);
  };
  child.stdout.setEncoding('utf8').on('data', keep);
  child.stderr.setEncoding('utf8').on('data', keep);
  return new Promise((settle) => {
    child.on('error', (error) =>
      settle({ ok: false, output: `${name}: ${error.message}` }),
    );
    child.on('close', (code, signal) => {
      const end = signal === null ? '' : `\n${name} was stopped by ${signal}`;
      settle({ ok: code === 0, output: output + end });
    });
  });
}

let failed = 0;
for (const step of STEPS) {
  const startedMs = performance.now();
  const { ok, output } = await step.run();
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  process.stdout.write(
    `${ok ? 'ok    ' : 'FAILED'} ${step.name.padEnd(24)} ${seconds.padStart(6)} s\n`,
  );
  if (!ok) {
    failed += 1;
    process.stdout.write(`${output.trimEnd().replaceAll(/^/gm, '       ')}\n`);
  }
}
process.stdout.write(`${STEPS.length - failed} passed, ${failed} failed\n`);
process.exitCode = failed === 0 ? 0 : 1;
