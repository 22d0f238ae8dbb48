/**
 * A proxy between a client and a source: counts requests, and answers the fifth page as a
 * broken source would.
 */
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export const FAULTS = [
  'none',
  'ends too early',
  'a cursor that loops',
  'half an answer',
  'HTML',
] as const;
export type Fault = (typeof FAULTS)[number];
const BROKEN_PAGE = 5;
const PARTIES = '/api/v2/parties';

export interface FaultySource extends AsyncDisposable {
  readonly url: string;
  requests(): number;
}

export async function startFaulty(
  upstream: URL,
  fault: Fault,
): Promise<FaultySource> {
  let requests = 0;
  let pages = 0;
  let looped: string | undefined;
  const pass = async (
    path: string,
    response: ServerResponse,
  ): Promise<void> => {
    const answer = await fetch(new URL(path, upstream));
    const text = await answer.text();
    const isPage =
      path.startsWith(PARTIES) && path.includes('newestFirst=false');
    if (isPage) pages += 1;
    for (const [name, value] of answer.headers)
      if (
        !/^(?:content-length|content-encoding|transfer-encoding|connection)$/.test(
          name,
        )
      )
        response.setHeader(name, value);
    response.statusCode = answer.status;
    if (!isPage || pages < BROKEN_PAGE || fault === 'none') response.end(text);
    else if (fault === 'a cursor that loops') {
      looped ??= text;
      response.end(looped);
    } else if (pages > BROKEN_PAGE) response.end(text);
    else breakOnce(fault, text, response);
  };
  const server = createServer((request, response) => {
    requests += 1;
    void pass(request.url ?? '/', response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests: () => requests,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

function breakOnce(fault: Fault, text: string, response: ServerResponse): void {
  if (fault === 'ends too early')
    response.end(text.replace(/"hasNextPage":\s*true/, '"hasNextPage":false'));
  else if (fault === 'HTML')
    response
      .setHeader('content-type', 'text/html')
      .end('<html>try again</html>');
  else {
    response.setHeader('content-length', Buffer.byteLength(text));
    response.write(text.slice(0, text.length / 2), () => response.destroy());
  }
}
