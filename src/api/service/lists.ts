/** `GET /api/v2/parties` and `/api/v2/checkpoints`, as the mirrored service answers them. */
import type { FastifyInstance } from 'fastify';
import { sharedLoad } from '../../core/shared-load.ts';
import { describeRoutes, nameSchemas } from '../http/routes.ts';
import { sendJson, sendStatus, StatusError } from '../http/status-error.ts';
import { Cursors } from './cursors.ts';
import { LIST_PAGES } from './list-pages.ts';
import { LISTS, PAGE_INFO } from './list-schemas.ts';
import type { ListStore } from './store/read-store.ts';

/** How much older than the rows the block named in the headers may be; never newer. */
const STATE_MAX_AGE_MS = 1_000;

/** Adds both routes. */
export function addLists(server: FastifyInstance, store: ListStore): void {
  const secret = sharedLoad(() => store.cursorSecret());
  nameSchemas(server, { PageInfo: PAGE_INFO });
  for (const name of ['parties', 'checkpoints'] as const) {
    const readState = sharedLoad(() => store.state(name), STATE_MAX_AGE_MS);
    const { summary, ...schema } = LISTS[name];
    describeRoutes(server, 'service')(`GET /api/v2/${name}`, summary, schema, async ({ url }, reply) => {
      const state = await readState();
      const block = {
        'x-block-height': state.headHeight,
        'x-block-timestamp': state.headNanos,
        'x-mirror-whole': `${state.isComplete}`,
      };
      try {
        const found = await LIST_PAGES[name]({
          url,
          state,
          store,
          cursors: new Cursors(await secret(), name),
        });
        const isPretty = /[?&]pretty(?:[=&]|$)/.test(url);
        return sendJson(reply.headers(block), { [name]: found }, isPretty ? 1 : undefined);
      } catch (error) {
        if (!(error instanceof StatusError)) throw error;
        // What the gateway refuses never reached the service's handlers, which name the block.
        return sendStatus(error.body.details.length === 0 ? reply : reply.headers(block), error);
      }
    });
  }
}
