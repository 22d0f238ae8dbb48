/**
 * A mirror of its own for a test: a folder, its settings, and the real commands as child
 * processes.
 */
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { farSchedule } from '../support/far-schedule.ts';
import { Child, runScript } from '../support/process.ts';

const BIN = resolve(import.meta.dirname, '../../bin/ledger-mirror.js');
const COMMAND_TIMEOUT_MS = 240_000;
/** The sandbox is this machine's own: nobody is to be spared. */
const RATE = '100000';

export type Settings = Readonly<Record<string, string | undefined>>;

export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface MirrorHome extends AsyncDisposable {
  readonly dir: string;
  readonly dataDir: string;
  /** Where objects lie, unless a test says otherwise. */
  readonly objectsDir: string;
  /** Starts a command; the child is killed with the home where it still runs. */
  start(args: readonly string[], settings?: Settings): Child;
  /** Runs a command to its end. */
  run(args: readonly string[], settings?: Settings): Promise<Ended>;
  /** Types lines into a shell in the folder, which ends where one of them fails. */
  type(script: string, settings?: Settings): Promise<Ended>;
  /**
   * Runs a command with `--json`, of which stdout holds one document and nothing else.
   */
  json(
    args: readonly string[],
    settings?: Settings,
  ): Promise<Ended & { document: Document }>;
  /** Files below the spool: what is in work, or was left behind. */
  spooled(): Promise<string[]>;
}

/** What is read of the documents here; each command has more. */
export interface Document {
  readonly verdict?: string | null;
  readonly evidence?: Readonly<Record<string, unknown>>;
  readonly [name: string]: unknown;
}

export async function openHome(
  settings: Settings,
  name = 'ledger-mirror cli ',
  commandTimeoutMs = COMMAND_TIMEOUT_MS,
): Promise<MirrorHome> {
  const dir = await mkdtemp(join(tmpdir(), name));
  const dataDir = join(dir, 'data');
  const children: Child[] = [];
  const environment = (more: Settings): Settings => ({
    SOURCE_RATE: RATE,
    DATA_DIR: dataDir,
    LOG_LEVEL: 'info',
    SCHEDULE: farSchedule(),
    FIRST_RUN: 'scheduled',
    ...settings,
    ...more,
  });
  const keep = (child: Child): Child => {
    children.push(child);
    return child;
  };
  const start = (args: readonly string[], more: Settings = {}): Child =>
    keep(runScript(BIN, args, { cwd: dir, env: environment(more) }));
  const ended = async (child: Child): Promise<Ended> => {
    const { code } = await child.end(undefined, commandTimeoutMs);
    return { code, stdout: child.stdout, stderr: child.stderr };
  };
  const run = async (
    args: readonly string[],
    more?: Settings,
  ): Promise<Ended> => ended(start(args, more));
  return {
    dir,
    dataDir,
    objectsDir: join(dataDir, 'objects'),
    start,
    run,
    type: (script, more = {}) =>
      ended(
        keep(
          new Child('bash', ['-euo', 'pipefail', '-c', script], {
            cwd: dir,
            env: environment(more),
          }),
        ),
      ),
    json: async (args, more) => {
      const told = await run([...args, '--json'], more);
      try {
        return { ...told, document: JSON.parse(told.stdout) as Document };
      } catch (error) {
        throw new Error(
          `stdout of ${args.join(' ')} is no document:\n${told.stdout}\n${told.stderr}`,
          {
            cause: error,
          },
        );
      }
    },
    spooled: async () => [
      ...(await filesBelow(join(dataDir, 'spool'))),
      ...(await filesBelow(join(dataDir, 'objects', '.spool'))),
    ],
    [Symbol.asyncDispose]: async () => {
      await Promise.all(children.map((child) => child[Symbol.asyncDispose]()));
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Paths of all files, relative to the folder; none where it is not there. */
export async function filesBelow(folder: string): Promise<string[]> {
  const entries = await readdir(folder, {
    recursive: true,
    withFileTypes: true,
  }).catch(() => []);
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name));
}
