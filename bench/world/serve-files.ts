/**
 * Serves static files with as little code as possible, as the baseline for an export from
 * whole segments.
 */
import { createReadStream } from 'node:fs';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pipeline } from 'node:stream';
import type { AddressInfo } from 'node:net';

const [dir = '.'] = process.argv.slice(2);
const server = createServer((request, response) => {
  response.setHeader('content-type', 'text/csv');
  pipeline(
    createReadStream(join(dir, decodeURIComponent(request.url ?? ''))),
    response,
    () => undefined,
  );
}).listen(0, '127.0.0.1');
await once(server, 'listening');
process.stdout.write(
  `http://127.0.0.1:${(server.address() as AddressInfo).port}\n`,
);
// The process ends when its input ends.
for await (const _ of process.stdin);
server.closeAllConnections();
server.close();
