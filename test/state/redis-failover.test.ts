/**
 * A Redis that failed over behind one address: the old connection leads to what is a
 * replica now.
 */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { openRedisState } from '../../src/state/redis-state.ts';

test('openRedisState connects anew after READONLY, and writes to the present master', async () => {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    const isReplica = connections === 1;
    socket.on('error', () => undefined);
    socket.on('data', (data) => {
      for (const command of data
        .toString()
        .split(/\*\d+\r\n/)
        .slice(1)) {
        const name = command.split('\r\n')[1]?.toLowerCase();
        if (name === 'set' && isReplica)
          socket.write('-READONLY You are a replica\r\n');
        else if (name === 'info') socket.write('$9\r\nloading:0\r\n');
        else socket.write('+OK\r\n');
      }
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const state = openRedisState(
    `redis://127.0.0.1:${port}`,
    'test',
    () => undefined,
  );
  try {
    await expect
      .poll(() =>
        state.set('key', 1, 1_000).then(
          () => 'written',
          () => 'refused',
        ),
      )
      .toBe('written');
    expect(connections).toBeGreaterThan(1);
  } finally {
    await state.close();
    server.close();
  }
}, 20_000);
