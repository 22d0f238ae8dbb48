/** What a client has asked of the lake, and no longer waits for. */
import { expect, test } from 'vitest';
import { listen } from '../../../src/api/server/server.ts';
import { waitFor } from '../../support/wait-for.ts';
import { apiWithoutDatabase, NO_CONSOLE, NO_LAKE } from '../mirror.ts';

test.each(['query', 'query/file?format=parquet'])(
  'lets the statement of /console/%s go with a client that leaves before its first bytes',
  async (path) => {
    const asked: AbortSignal[] = [];
    const never = (signal: AbortSignal): Promise<never> => {
      asked.push(signal);
      return new Promise((_, reject) =>
        signal.addEventListener('abort', () => reject(new Error('let go'))),
      );
    };
    const lake = {
      ...NO_LAKE,
      ask: (_question: unknown, signal: AbortSignal) => never(signal),
      file: (_question: unknown, _format: unknown, signal: AbortSignal) =>
        never(signal),
    };
    const server = await apiWithoutDatabase({
      console: { ...NO_CONSOLE, lake },
    });
    await using api = await listen(server, {
      host: '127.0.0.1',
      port: 0,
      token: undefined,
    });
    const client = new AbortController();
    const answer = fetch(`${api.url}/console/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ sql: 'select 1' }),
      signal: client.signal,
    });
    await waitFor(() => asked.length === 1, { what: 'the statement' });
    client.abort();
    await expect(answer).rejects.toThrow('aborted');
    await expect(
      waitFor(() => asked[0]?.aborted === true, { what: 'the abort' }),
    ).resolves.toBe(true);
  },
);
