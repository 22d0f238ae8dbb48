/** Starts the command line with this process's environment; everything else is called with its inputs. */
import { unlessBrokenPipe } from './cli/output/destination.ts';
import { runCli } from './cli/program.ts';
import { processEnvironment } from './config/environment.ts';

/** After a command has ended nothing should keep the process; if something does, it does not for long. */
const LINGER_MAX_MS = 3_000;

// Ledgers, lake and spool are for this user alone, whatever the shell's default is.
process.umask(0o077);

const stop = new AbortController();
for (const name of ['SIGINT', 'SIGTERM'] as const) {
  process.on(name, () => {
    // A second signal means now: everything is safe against that.
    if (stop.signal.aborted) process.exit(name === 'SIGINT' ? 130 : 143);
    stop.abort(new DOMException(`told to stop by ${name}`, 'AbortError'));
  });
}

// A reader such as `head` may stop early: what is written after that is for nobody.
for (const output of [process.stdout, process.stderr])
  output.on('error', unlessBrokenPipe);

// Where nothing is left to wait for and no answer came, Node would end as if all were well.
process.exitCode = 1;
process.once('exit', sayUnanswered);
const given = processEnvironment();
const { env } = given;
process.exitCode = await runCli({
  argv: process.argv.slice(2),
  ...given,
  setVariable: (name, value) => {
    env[name] ??= value;
  },
  stdout: process.stdout,
  stderr: process.stderr,
  signal: stop.signal,
});
process.off('exit', sayUnanswered);
setTimeout(() => process.exit(), LINGER_MAX_MS).unref();

function sayUnanswered(): void {
  if (!stop.signal.aborted)
    process.stderr.write(
      'ledger-mirror: ended without an answer; this is a bug\n',
    );
}
