/**
 * Facts about the host: a server's processes, the boot id, and paths for the current
 * folder and for an inherited file. Linux shows them in `/proc`; systems without it
 * (macOS) use other programs.
 */
import { spawnSync } from 'node:child_process';
import * as fs from 'node:fs';

export interface Host {
  /** A path that stands for the folder a child starts in, for use as its argument. */
  readonly currentFolder: string;
  /** Returns a path to the file that a child inherits as this descriptor. */
  descriptorPath(fd: number): string;
  /** Returns an id of the running kernel, which changes with every boot. */
  bootId(): string;
  /** Returns an id of the PID namespace within that kernel. */
  pidNamespace(): string;
  /**
   * Returns the pids of the Postgres processes whose command line contains `name`.
   * Zombies have no command line.
   */
  serverPids(name: string): number[];
  /** Whether the process is a Postgres process whose command line contains `name`. */
  isServing(pid: number, name: string): boolean;
}

const PS_TIMEOUT_MS = 10_000;
const PS_BYTES_MAX = 16 * 2 ** 20;

export const BY_PROC: Host = {
  // Not the folder's own path, because the child's user may not be able to enter its
  // parents.
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
      // The process has ended in the meantime.
      return false;
    }
  },
};

export const BY_PROGRAMS: Host = {
  currentFolder: '.',
  descriptorPath: (fd) => `/dev/fd/${fd}`,
  // If the system has no boot id, any constant will do, because `ps` shows all processes.
  bootId: () => outputOf('sysctl', '-n', 'kern.bootsessionuuid') ?? 'unknown',
  pidNamespace: () => 'the only one',
  serverPids: (name) => findServers(['-A'], name),
  isServing: (pid, name) => findServers(['-p', `${pid}`], name).includes(pid),
};

export const HOST: Host = process.platform === 'linux' ? BY_PROC : BY_PROGRAMS;

/**
 * Finds the pids of Postgres processes.
 * @param chosen the `ps` options that select processes
 */
function findServers(chosen: readonly string[], name: string): number[] {
  const lines = outputOf('ps', ...chosen, '-ww', '-o', 'pid=,args=') ?? '';
  return findServerLines(lines, name);
}

/**
 * Finds the pids of Postgres processes in the output of `ps -o pid=,args=`. The program's
 * path may contain spaces, so its end is recognised by the first arguments. The server's
 * children are called `postgres: …`.
 */
export function findServerLines(lines: string, name: string): number[] {
  return lines.split('\n').flatMap((line) => {
    const [, pid] =
      /^\s*(\d+)\s+(?:\/.*\/)?postgres(?: -D |: )/.exec(line) ?? [];
    return pid !== undefined && line.includes(name) ? [Number(pid)] : [];
  });
}

/**
 * Runs a program.
 * @returns its output; undefined if the program is missing or fails
 */
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
