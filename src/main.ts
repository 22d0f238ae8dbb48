/**
 * Starts the command line with this process's environment. All other modules receive
 * their inputs as arguments.
 */
import { unlessBrokenPipe } from './cli/output/destination.ts';
import { runCli } from './cli/program.ts';
import { processEnvironment } from './config/environment.ts';

/**
 * How long the process may linger after its command has ended. By then nothing should
 * keep it alive; if something does, the process is ended after this time.
 */
const LINGER_MAX_MS = 3_000;

// Ledgers, lake and spool are readable by this user only, whatever umask the shell sets.
process.umask(0o077);

const stop = new AbortController();
for (const name of ['SIGINT', 'SIGTERM'] as const) {
  process.on(name, () => {
    // A second signal means "exit now". That is safe: all stored state survives a kill.
    if (stop.signal.aborted) process.exit(name === 'SIGINT' ? 130 : 143);
    stop.abort(new DOMException(`told to stop by ${name}`, 'AbortError'));
  });
}

// A reader such as `head` may close the pipe early. Nothing that is written after that
// is read.
for (const output of [process.stdout, process.stderr])
  output.on('error', unlessBrokenPipe);

// If the event loop runs empty before the command has answered, Node would exit with code
// 0, as if all were well.
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
      'ledger-mirror: ended without a result; this is a bug\n',
    );
}
