/** The context of a command that a test calls in its own process. */
import { PassThrough } from 'node:stream';
import type { CommandContext } from '../../src/cli/context.ts';
import { createProgress } from '../../src/cli/output/progress.ts';
import type { Config } from '../../src/config/environment.ts';
import { createLog } from '../../src/logging/log.ts';

/** Creates a context that shows nothing; its streams hold what was written. */
export function openCommandContext(config: Config): CommandContext {
  const log = createLog('silent');
  return {
    config,
    log,
    isJson: false,
    progress: createProgress(log),
    notices: log,
    stdout: new PassThrough(),
    stderr: new PassThrough(),
    signal: new AbortController().signal,
  };
}
