/**
 * Exports in a process of its own, until it is killed or told to stop, or to its end. Run
 * by the test beside it.
 */
import { writeSync } from 'node:fs';
import { exportFrom, type FaultCase, TestRowPool } from './fault-case.ts';

const given = JSON.parse(process.argv[2] ?? '{}') as FaultCase & {
  signal: 'SIGKILL' | 'SIGTERM';
  atBytes: number;
};
const stop = new AbortController();
process.once('SIGTERM', () => stop.abort(new Error('told to stop')));
await using rowPool = new TestRowPool();
let isSent = false;
let receivedBytes = 0;
await exportFrom(
  given,
  {
    rowPool,
    onProgress: ({ bytes }) => {
      receivedBytes = bytes;
      if (bytes < given.atBytes || isSent) return;
      isSent = true;
      writeSync(1, `${bytes} ${rowPool.blocks}\n`);
      process.kill(process.pid, given.signal);
    },
  },
  stop.signal,
).catch((error: unknown) => {
  if (!stop.signal.aborted) throw error;
});
if (!isSent) writeSync(1, `${receivedBytes} ${rowPool.blocks}\n`);
