/**
 * What Linux shows in `/proc`, and how a system without it (macOS) shows the same: the processes of
 * a server, the boot, and names for the current folder and an inherited file.
 */
import { spawnSync } from 'node:child_process';
import * as fs from 'node:fs';

export interface Host {
  /** The folder that a child starts in, as an argument of its own. */
  readonly currentFolder: string;
  /** The name of a file that a child inherits under this number. */
  descriptorPath(fd: number): string;
  /** Identifies the running kernel. */
  bootId(): string;
  /** Identifies the space in which pids are unique within that kernel. */
  pidNamespace(): string;
  /** Pids of the processes of Postgres whose command line holds `name`. Zombies have none. */
  serverPids(name: string): number[];
  /** Whether the process is one of these. */
  isServing(pid: number, name: string): boolean;
}

const PS_TIMEOUT_MS = 10_000;
const PS_BYTES_MAX = 16 * 2 ** 20;

export const BY_PROC: Host = {
  // Without a name: the user of the child may be unable to enter the folders above.
  currentFolder: '/proc/self/cwd',
  descriptorPath: (fd) => `/proc/self/fd/${fd}`,
  bootId: () =>
    fs.readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
  pidNamespace: () => fs.readlinkSync('/proc/self/ns/pid'),
  serverPids: (name) =>
    fs
      .readdirSync('/proc')
      .filter((entry) => /^\d+$/.test(entry))
      .map(Number)
      .filter((pid) => BY_PROC.isServing(pid, name)),
  isServing(pid, name) {
    try {
      return (
        fs.readFileSync(`/proc/${pid}/comm`, 'utf8') === 'postgres\n' &&
        fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(name)
      );
    } catch {
      // It ended in between.
      return false;
    }
  },
};

export const BY_PROGRAMS: Host = {
  currentFolder: '.',
  descriptorPath: (fd) => `/dev/fd/${fd}`,
  // A system that does not tell its boot has one: `ps` shows all there is.
  bootId: () => outputOf('sysctl', '-n', 'kern.bootsessionuuid') ?? 'unknown',
  pidNamespace: () => 'the only one',
  serverPids: (name) => findServers(['-A'], name),
  isServing: (pid, name) => findServers(['-p', `${pid}`], name).includes(pid),
};

export const HOST: Host = process.platform === 'linux' ? BY_PROC : BY_PROGRAMS;

/** @param chosen the options of `ps` that choose processes */
function findServers(chosen: readonly string[], name: string): number[] {
  const lines = outputOf('ps', ...chosen, '-ww', '-o', 'pid=,args=') ?? '';
  return lines.split('\n').flatMap((line) => {
    const [, pid, program = ''] = /^\s*(\d+)\s+(\S+)/.exec(line) ?? [];
    // Its children are called `postgres: …`.
    const isPostgres = /(?:^|\/)postgres:?$/.test(program);
    return isPostgres && line.includes(name) ? [Number(pid)] : [];
  });
}

/** @returns undefined if the program is not there, or fails */
function outputOf(
  program: string,
  ...args: readonly string[]
): string | undefined {
  const { status, stdout } = spawnSync(program, args, {
    env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', LC_ALL: 'C' },
    encoding: 'utf8',
    timeout: PS_TIMEOUT_MS,
    maxBuffer: PS_BYTES_MAX,
  });
  return status === 0 ? stdout.trim() : undefined;
}
