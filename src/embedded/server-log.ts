/**
 * The server's log. The lines of the first crash matter most, and a server that keeps
 * failing must not push them out. Therefore `server.log` is moved to `server.log.old`
 * only if its server was ever ready; failed starts append to it.
 */
import * as fs from 'node:fs';
import { join } from 'node:path';
import { errorCode } from '../errors/errors.ts';

const READY = 'database system is ready to accept connections';
/**
 * Maximum size of the log of failed starts. A longer log keeps its first lines and loses
 * lines in the middle.
 */
const FAILED_STARTS_BYTES_MAX = 256 * 1024;
const FIRST_BYTES = 64 * 1024;
const TAIL_CHARS = 2_000;

export function serverLogFile(home: string): string {
  return join(home, 'server.log');
}

/**
 * Prepares the log for the lines of one start.
 * @returns the byte offset at which these lines begin
 */
export function openLog(home: string): number {
  const file = serverLogFile(home);
  const log = readLog(file);
  if (log.includes(READY)) {
    fs.renameSync(file, `${file}.old`);
    return 0;
  }
  if (log.length <= FAILED_STARTS_BYTES_MAX) return log.length;
  fs.truncateSync(file, FIRST_BYTES);
  return FIRST_BYTES;
}

/** Returns the last lines written after byte offset `start`. */
export function logSince(home: string, start: number): string {
  return readLog(serverLogFile(home))
    .subarray(start)
    .toString()
    .slice(-TAIL_CHARS);
}

function readLog(file: string): Buffer {
  try {
    return fs.readFileSync(file);
  } catch (error) {
    if (errorCode(error) !== 'ENOENT') throw error;
    return Buffer.alloc(0);
  }
}
