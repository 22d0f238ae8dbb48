import { IncomingMessage, ServerResponse } from 'node:http';
import { Socket } from 'node:net';
import type { FastifyReply } from 'fastify';
import { expect, test } from 'vitest';
import { limitOpen } from '../../../src/api/kit/events.ts';

function openReply(): Pick<FastifyReply, 'raw'> {
  return { raw: new ServerResponse(new IncomingMessage(new Socket())) };
}

test('a place is free again once its client is gone, and one that has gone already takes none', () => {
  const mayOpen = limitOpen(1) as (reply: Pick<FastifyReply, 'raw'>) => boolean;
  const gone = openReply();
  gone.raw.destroyed = true;
  expect(mayOpen(gone)).toBe(false);
  const first = openReply();
  expect([mayOpen(first), mayOpen(openReply())]).toEqual([true, false]);
  first.raw.emit('close');
  expect(mayOpen(openReply())).toBe(true);
});
