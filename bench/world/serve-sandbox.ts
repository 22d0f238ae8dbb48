/**
 * Runs a sandbox in a separate process, like a real source. It prints its URL, advances
 * the network on request, and ends with its parent.
 */
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  sendAnswer,
  startSandbox,
  type Sandbox,
} from '../../src/sandbox/http/server.ts';

const [parties = '1000', latencyMs = '0', whaleEntries = '0'] =
  process.argv.slice(2);
const options = {
  parties: Number(parties),
  whaleEntries: Number(whaleEntries),
  rateLimit: 'none',
} as const;
const sandbox: Sandbox = await startSandbox(options, async (...asked) => {
  if (Number(latencyMs) > 0) await sleep(Number(latencyMs));
  await sendAnswer(...asked);
});
process.stdout.write(`${sandbox.url}\n`);
// Each line is a duration in milliseconds by which the network advances. The process ends
// when its input does.
for await (const line of createInterface({ input: process.stdin })) {
  sandbox.network.advance(Number(line));
  process.stdout.write('advanced\n');
}
await sandbox.stop();
