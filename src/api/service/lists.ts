/** `GET /api/v2/parties` and `/api/v2/checkpoints`, as the mirrored service answers them. */
import type { FastifyInstance, FastifyReply } from 'fastify';
import { NETWORK_PARTY } from '../../core/ids.ts';
import { checkpointPage } from './checkpoint-list.ts';
import { Cursors } from './cursors.ts';
import { LISTS, PAGE_INFO } from './list-schemas.ts';
import type { Page } from './paging.ts';
import { partyPage } from './party-list.ts';
import type { ListState, ListStore } from './store/read-store.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import { describeRoute, toJsonSchema } from '../http/schemas.ts';
import { sendJson, sendStatus, StatusError } from '../http/status-error.ts';

/** How much older than the rows the block named in the headers may be; never newer. */
const STATE_MAX_AGE_MS = 1_000;

type Answer = (url: string, state: ListState) => Promise<Page>;

/** Adds both routes. */
export function addLists(server: FastifyInstance, store: ListStore): void {
  const secret = sharedLoad(() => store.cursorSecret());
  // Asked with every first page, and once in a mirror's life another: it is listed, or not yet.
  const network = sharedLoad(
    async () => store.party((await store.state('parties')).epoch, NETWORK_PARTY),
    STATE_MAX_AGE_MS,
  );
  const hasNetwork = async (): Promise<boolean> => (await network()) !== undefined;
  server.addSchema({ $id: 'PageInfo', ...toJsonSchema(PAGE_INFO) });
  addList(server, 'parties', store, async (url, state) =>
    partyPage(url, state, { store, hasNetwork, cursors: new Cursors(await secret(), 'parties') }),
  );
  addList(server, 'checkpoints', store, async (url, state) =>
    checkpointPage(url, state, store, new Cursors(await secret(), 'checkpoints')),
  );
}

function addList(
  server: FastifyInstance,
  name: 'parties' | 'checkpoints',
  store: ListStore,
  answer: Answer,
): void {
  const { summary, querystring, page } = LISTS[name];
  const readState = sharedLoad(() => store.state(name), STATE_MAX_AGE_MS);
  server.get(
    `/api/v2/${name}`,
    // The query string is read by the gateway's rules in the handler, not by the schema.
    {
      ...describeRoute('service', summary, { querystring, response: { 200: page } }),
      validatorCompiler: () => () => true,
    },
    async (request, reply) => {
      const state = await readState();
      try {
        const found = await answer(request.url, state);
        const isPretty = /[?&]pretty(?:[=&]|$)/.test(request.url);
        return sendJson(nameState(reply, state), { [name]: found }, isPretty ? 1 : undefined);
      } catch (error) {
        if (!(error instanceof StatusError)) throw error;
        // What the gateway refuses never reached the service's handlers, which name the block.
        return sendStatus(error.body.details.length === 0 ? reply : nameState(reply, state), error);
      }
    },
  );
}

function nameState(reply: FastifyReply, state: ListState): FastifyReply {
  return reply.headers({
    'x-block-height': state.headHeight,
    'x-block-timestamp': state.headNanos,
    'x-mirror-whole': `${state.isComplete}`,
  });
}
