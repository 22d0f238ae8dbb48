/** Which run the code that is executing works for: log lines carry its id without being told. */
import { AsyncLocalStorage } from 'node:async_hooks';

const scope = new AsyncLocalStorage<string>();

/** Whatever `work` starts belongs to the run. */
export function inRun<Result>(runId: string, work: () => Promise<Result>): Promise<Result> {
  return scope.run(runId, work);
}

export function currentRunId(): string | undefined {
  return scope.getStore();
}
