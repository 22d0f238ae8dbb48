#!/usr/bin/env -S MALLOC_ARENA_MAX=2 node --max-semi-space-size=4
/**
 * Finds a Node that can run the sources and hands over to them. It must parse on old versions of Node,
 * whose only job here is to start the Node 24 that `npm ci` put into the checkout, or to say what is
 * missing in one line.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import nodeModule from 'node:module';
import { constants, homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { setFlagsFromString } from 'node:v8';

/** Type stripping without a flag or a warning. */
const NODE_MIN = [24, 12];
/** Those of macOS are run by a workflow; their Node is the user's own. */
const PLATFORMS = ['linux-x64', 'linux-arm64', 'darwin-arm64', 'darwin-x64'];
/** Pages and rows die young: a larger young generation would only keep them longer in memory. */
const SMALL_YOUNG_HEAP = '--max-semi-space-size=4';
/** What outlives the young heap dies soon after: between two collections the old one doubles, no more. */
const SLOW_OLD_HEAP = '--heap-growing-percent=100';
/** Threads that share the allocator's memory give it back sooner than each with its own: a tenth less for long exports. */
const SHARED_MEMORY = { MALLOC_ARENA_MAX: '2' };
/** Names the process that started this one, so that the two do not mistake a stranger for the other. */
const PARENT = 'LEDGER_MIRROR_PARENT';
/** Where a terminal is attached, the kernel sends these to parent and child alike. */
const FROM_TERMINAL = ['SIGINT', 'SIGQUIT', 'SIGHUP'];

const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** A package has what was written for it; a checkout runs its sources. */
const packaged = join(root, 'dist', 'src', 'main.js');
const isCheckout = existsSync(join(root, 'src', 'main.ts'));
const platform = `${process.platform}-${process.arch}`;
const remedy = isCheckout
  ? "run 'npm ci' in the checkout"
  : 'install the package again';

if (!PLATFORMS.includes(platform)) {
  refuse(
    `Cannot run on ${platform}: supported are ${PLATFORMS.join(', ')} (Linux with glibc)`,
  );
} else if (isNewEnough(process.versions.node)) {
  start();
} else {
  startWithNewerNode();
}

function isNewEnough(version) {
  const [major, minor] = version.split('.').map(Number);
  return major > NODE_MIN[0] || (major === NODE_MIN[0] && minor >= NODE_MIN[1]);
}

function start() {
  if (isMusl()) {
    refuse(
      `Cannot run on ${platform} with musl: use a system with glibc, such as Debian`,
    );
    return;
  }
  if (startedBySelf()) dieWithParent();
  delete process.env[PARENT];
  requireHome();
  setFlagsFromString(SLOW_OLD_HEAP);
  keepCompiled();
  const main = isCheckout
    ? import('../src/main.ts')
    : import(pathToFileURL(packaged).href);
  main.catch((error) => {
    const missing = error !== null && error.code === 'ERR_MODULE_NOT_FOUND';
    refuse(
      `Cannot start: ${String(error && error.message).split('\n')[0]}${missing ? `; ${remedy}` : ''}`,
    );
  });
}

/**
 * Node fails to name the home of a user that the system does not know, such as a container's random
 * uid. Such a user gets the one that containers give it; nobody can plant a file there.
 */
function requireHome() {
  try {
    homedir();
  } catch {
    process.env.HOME = '/';
  }
}

/** Modules that were compiled before need no compiler: a faster start, and 35 MB less in each process and thread. */
function keepCompiled() {
  // Where nothing can be written there, all are compiled anew; an operator's own setting goes first.
  const folder = isCheckout
    ? join(root, 'node_modules', '.cache')
    : process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  nodeModule.enableCompileCache(join(folder, 'ledger-mirror', 'compiled'));
}

function isMusl() {
  if (process.platform !== 'linux') return false;
  // Otherwise the report looks up the names of network peers, which may take seconds.
  process.report.excludeNetwork = true;
  return process.report.getReport().header.glibcVersionRuntime === undefined;
}

function startedBySelf() {
  return process.env[PARENT] === String(process.ppid);
}

/** The parent's kill -9 must not leave this process working behind its back. */
function dieWithParent() {
  process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));
  process.channel.unref();
}

function startWithNewerNode() {
  const node = foldersFrom(root)
    .flatMap((folder) =>
      [`node-${platform}/bin/node`, '.bin/node'].map((path) =>
        join(folder, 'node_modules', path),
      ),
    )
    .find((path) => existsSync(path));
  if (node === undefined || startedBySelf()) {
    refuse(
      `Cannot run on Node ${process.versions.node}: Node ${NODE_MIN.join('.')} or later is needed; ` +
        (process.platform === 'darwin'
          ? 'install one, for instance by brew install node@24'
          : `${remedy} (with optional dependencies), which brings one`),
    );
    return;
  }
  const child = spawn(
    node,
    [
      SMALL_YOUNG_HEAP,
      ...process.execArgv,
      process.argv[1],
      ...process.argv.slice(2),
    ],
    {
      stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
      env: { ...SHARED_MEMORY, ...process.env, [PARENT]: String(process.pid) },
    },
  );
  forwardSignals(child);
  child.on('error', (error) =>
    refuse(`Cannot start ${node}: ${error.message}`),
  );
  child.on('exit', (code, signal) => {
    process.exitCode = signal === null ? code : 128 + constants.signals[signal];
  });
}

/** npm puts a package's own packages below it, or beside it. */
function foldersFrom(folder) {
  const parent = dirname(folder);
  return parent === folder ? [folder] : [folder, ...foldersFrom(parent)];
}

function forwardSignals(child) {
  const hasTerminal =
    process.stdin.isTTY || process.stdout.isTTY || process.stderr.isTTY;
  for (const signal of ['SIGTERM', 'SIGUSR2', ...FROM_TERMINAL]) {
    const arrivesAnyway = hasTerminal && FROM_TERMINAL.includes(signal);
    process.on(signal, () => {
      if (!arrivesAnyway) child.kill(signal);
    });
  }
}

function refuse(message) {
  process.stderr.write(`ledger-mirror: ${message}\n`);
  process.exitCode = 1;
}
