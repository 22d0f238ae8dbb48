/**
 * Returns what the command line prints, for tests that compare it with pages and scripts.
 */
import { Writable } from 'node:stream';
import { runCli } from '../../src/cli/program.ts';

/** Returns both streams of one call without settings. */
export async function printed(...argv: readonly string[]): Promise<string> {
  const written: string[] = [];
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      written.push(chunk.toString());
      done();
    },
  });
  const { signal } = new AbortController();
  await runCli({
    argv,
    env: {},
    cwd: import.meta.dirname,
    stdout: stream,
    stderr: stream,
    signal,
  });
  return written.join('');
}

/** Returns what `--help` prints for one command or for all. */
export async function helpOf(...command: readonly string[]): Promise<string> {
  return printed(...command, '--help');
}
