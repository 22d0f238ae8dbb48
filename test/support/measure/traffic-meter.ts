/** A proxy that counts the requests to a service and its answers. */
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { pipeline } from 'node:stream';

export interface Traffic {
  /** Requests for pages of lists. */
  lists: number;
  /** Requests for entries of ledgers. */
  exports: number;
  /** Bytes in the bodies of exports, as transmitted. */
  exportBytes: number;
}

const NOTHING: Traffic = { lists: 0, exports: 0, exportBytes: 0 };

export interface TrafficMeter extends AsyncDisposable {
  /** The URL to use in place of the service's. */
  readonly url: string;
  readonly counted: Traffic;
  reset(): void;
}

export async function openMeter(service: string): Promise<TrafficMeter> {
  const counted: Traffic = { ...NOTHING };
  const server = createServer((incoming, outgoing) => {
    const path = incoming.url ?? '/';
    const isExport = path.includes('/ledgerentry/export');
    if (isExport) counted.exports += 1;
    else counted.lists += 1;
    const { method, headers } = incoming;
    const sent = request(new URL(path, service), { method, headers });
    sent.on('error', () => outgoing.destroy());
    sent.on('response', (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.on('data', (chunk: Buffer) => {
        if (isExport) counted.exportBytes += chunk.length;
      });
      pipeline(answer, outgoing, () => undefined);
    });
    incoming.pipe(sent);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    counted,
    reset: () => Object.assign(counted, NOTHING),
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await once(server.close(), 'close');
    },
  };
}
