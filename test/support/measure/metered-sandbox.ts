/** A small network whose answers are counted, for nights in which little is new. */
import { type Sandbox, startSandbox } from '../sandbox.ts';
import { openMeter, type TrafficMeter } from './traffic-meter.ts';

export interface MeteredSandbox {
  readonly sandbox: Sandbox;
  /** Stands in front of the sandbox; mirrors request `meter.url`. */
  readonly meter: TrafficMeter;
}

/**
 * Starts the sandbox, which has a checkpoint each hour, and the meter. Both end with the
 * stack.
 */
export async function startMeteredSandbox(
  stack: AsyncDisposableStack,
): Promise<MeteredSandbox> {
  const sandbox = stack.use(
    await startSandbox({
      parties: 12,
      entriesMean: 400,
      checkpointIntervalMs: 3_600_000,
      rateLimit: 'none',
    }),
  );
  return { sandbox, meter: stack.use(await openMeter(sandbox.url)) };
}
