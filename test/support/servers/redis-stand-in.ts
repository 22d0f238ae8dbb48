/**
 * Accepts redis-server's `--port` and prints the same line when it is ready, so that
 * tests start both programs in the same way.
 */
import { parseArgs } from 'node:util';
import { createRedisServer } from 'js-redis-server';

const { values } = parseArgs({
  options: { port: { type: 'string' } },
  strict: false,
});
await createRedisServer({ port: Number(values['port'] ?? 0) });
process.stdout.write('Ready to accept connections\n');
