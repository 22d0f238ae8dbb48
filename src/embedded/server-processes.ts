/** Which processes serve a data folder, told from the outside, whoever started them. */
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { errorCode } from '../core/errors.ts';

/** What a server writes about itself. */
export interface Server {
  readonly pid: number;
  readonly port: number;
  /** `starting`, `ready` or `stopping`. */
  readonly status: string;
}

/**
 * Marks this folder's processes in their command lines, which any user may read (the working
 * directory of another user's process needs a capability that containers do not have).
 */
export function clusterName(dir: string): string {
  const { dev, ino } = statSync(dir, { bigint: true });
  return `ledger_mirror_${createHash('sha256').update(`${dev}:${ino}`).digest('hex').slice(0, 12)}`;
}

/** Pids of every process of this folder's server. A zombie has no command line, so it is not counted. */
export function serverPids(dir: string): number[] {
  const name = clusterName(dir);
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry) && isServing(entry, name))
    .map(Number);
}

/** The server that runs on this data folder, whoever started it, ready or not. */
export function findServer(dir: string): Server | undefined {
  const file = readPidFile(dir);
  return file !== undefined && isServing(String(file.pid), clusterName(dir)) ? file : undefined;
}

function isServing(pid: string, name: string): boolean {
  try {
    return (
      readFileSync(`/proc/${pid}/comm`, 'utf8') === 'postgres\n' &&
      readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(name)
    );
  } catch {
    return false; // It ended in between.
  }
}

/** `postmaster.pid`: pid, folder, start, port, socket, address, shared memory, status, a line each. */
export function readPidFile(dir: string): Server | undefined {
  let lines: string[];
  try {
    lines = readFileSync(join(dir, 'postmaster.pid'), 'utf8').split('\n');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw error;
  }
  const [pid, port] = [Number(lines[0]), Number(lines[3])];
  return pid > 0 && port > 0 ? { pid, port, status: (lines[7] ?? '').trim() } : undefined;
}

/** To a process that may have ended already. */
export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if (errorCode(error) !== 'ESRCH') throw error;
  }
}
