/**
 * `GET /api/v2/parties` and `/api/v2/checkpoints`, as the mirrored service answers them. The network's own party is
 * listed without a position: it stands above all others, newest first the first row and oldest first the last. The
 * service leaves it out where it is not on the first page, and sends nothing behind its cursor; whoever follows the
 * cursors here gets every row. Where several checkpoints share a height, the service leaves their order open and its
 * cursor cannot tell them apart; here each has its own.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { canonicalPartyId, ID_WORDS, NETWORK_PARTY } from '../../ledger/ids.ts';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import type { Rows } from '../../postgres/rows.ts';
import { readQuery } from '../kit/query-text.ts';
import { openRoutes, named, nameSchemas } from '../kit/routes.ts';
import { DETAIL, sendJson, sendStatus, StatusError } from '../kit/status-error.ts';
import {
  Cursors,
  type Page,
  PAGE_FIELDS,
  PAGE_INFO,
  PAGING,
  readPageRequest,
  toPage,
} from './paging.ts';
import * as store from './store/list-rows.ts';

/** How much older than the rows the block named in the headers may be; never newer. */
const STATE_MAX_AGE_MS = 1_000;
const PARTY_FIELDS = { party_id: 'string', ...PAGE_FIELDS } as const;
const EVEN_HEX = /^(?:[0-9a-f]{2})+$/i;
const NETWORK: store.PartyRow = { id: NETWORK_PARTY, pos: null };
/** A page of its own for what is not cut from the list. */
const ALONE = { isForward: true, rowsMax: 1, beyond: undefined } as const;

const PARTY_ID = z
  .string()
  .optional()
  .describe('Only this party; 404 where the mirror has none of that id.');
const CHECKPOINT = z.object({
  hash: z.string(),
  blockHash: z.string(),
  atBlock: z.string().meta({ format: 'uint64' }),
});

interface Asked {
  readonly url: string;
  readonly state: store.ListState;
  readonly cursors: Cursors;
}

/** The lists as OpenAPI tells of them (nothing is validated by that: see query-text.ts), and how a page of each is made. */
const LISTS = {
  parties: {
    summary: 'List parties, or look one up',
    querystring: z.object({ partyId: PARTY_ID, ...PAGING.shape }),
    node: z.object({ id: z.string() }),
    read: readParties,
  },
  checkpoints: {
    summary: 'List the checkpoints of the network',
    querystring: PAGING,
    node: CHECKPOINT,
    read: readCheckpoints,
  },
};

/** Adds both routes. */
export function addLists(server: FastifyInstance, rows: Rows): void {
  const secret = sharedLoad(() => store.readCursorSecret(rows));
  nameSchemas(server, { PageInfo: PAGE_INFO });
  const add = openRoutes(server, 'service');
  for (const name of ['parties', 'checkpoints'] as const) {
    const readState = sharedLoad(() => store.readListState(rows, name), STATE_MAX_AGE_MS);
    const { summary, querystring, node, read } = LISTS[name];
    const edges = z.array(z.object({ node, cursor: z.string() }));
    const response = {
      200: z.object({ [name]: z.object({ edges, pageInfo: named('PageInfo') }) }),
    };
    add(
      `GET /api/v2/${name}`,
      { summary, querystring, response },
      async ({ url }, reply) => {
        const state = await readState();
        const block = {
          'x-block-height': state.headHeight,
          'x-block-timestamp': state.headNanos,
          'x-mirror-whole': `${state.isComplete}`,
        };
        try {
          const found = await read(rows, {
            url,
            state,
            cursors: new Cursors(await secret(), name),
          });
          const isPretty = /[?&]pretty(?:[=&]|$)/.test(url);
          return sendJson(
            reply.headers(block),
            { [name]: found },
            isPretty ? 1 : undefined,
          );
        } catch (error) {
          if (!(error instanceof StatusError)) throw error;
          // What the gateway refuses never reached the service's handlers, which name the block.
          return sendStatus(
            error.body.details.length === 0 ? reply : reply.headers(block),
            error,
          );
        }
      },
    );
  }
}

/** @throws StatusError as the service words it */
async function readParties(
  rows: Rows,
  { url, state: { epoch, hasNetwork }, cursors }: Asked,
): Promise<Page> {
  const edgeOf = ({ id, pos }: store.PartyRow) => ({
    node: { id },
    cursor: cursors.write(`${epoch}`, pos ?? ''),
  });
  const { party_id: partyId, ...paging } = readQuery(url, PARTY_FIELDS);
  // Also where one party is asked for and its page is not cut from the list.
  const request = readPageRequest(paging, epoch, cursors);
  if (partyId !== undefined && partyId !== '')
    return toPage(ALONE, [await findParty(rows, partyId, epoch)], edgeOf);
  const { ascending, beyond, rowsMax } = request;
  const isBeyondNetwork = beyond?.[0] === '';
  if (isBeyondNetwork && ascending) return toPage(ALONE, [], edgeOf);
  const slice = {
    ascending,
    beyond: isBeyondNetwork ? undefined : beyond,
    rowsMax: rowsMax + 1,
  };
  const found = await store.readSlice(rows, 'parties', epoch, slice);
  const isNetworkHere =
    hasNetwork && (ascending ? found.length <= rowsMax : beyond === undefined);
  const networkHere = isNetworkHere ? [NETWORK] : [];
  return toPage(
    request,
    ascending ? [...found, ...networkHere] : [...networkHere, ...found],
    edgeOf,
  );
}

/** @throws StatusError as the service words it */
async function readCheckpoints(
  rows: Rows,
  { url, state: { epoch }, cursors }: Asked,
): Promise<Page> {
  const request = readPageRequest(readQuery(url, PAGE_FIELDS), epoch, cursors);
  const slice = { ...request, rowsMax: request.rowsMax + 1 };
  const found = await store.readSlice(rows, 'checkpoints', epoch, slice);
  return toPage(request, found, ({ hash, blockHash, atBlock, copy }) => ({
    node: { hash, blockHash, atBlock },
    cursor: cursors.write(`${epoch}`, atBlock, hash, blockHash, copy),
  }));
}

async function findParty(
  rows: Rows,
  text: string,
  epoch: number,
): Promise<store.PartyRow> {
  // Words are taken as they are written, hex in either case.
  const id = EVEN_HEX.test(text) ? text.toLowerCase() : text;
  const found =
    canonicalPartyId(id) === id ? await store.readParty(rows, epoch, id) : undefined;
  if (found !== undefined) return found;
  const isId = EVEN_HEX.test(id) || ID_WORDS.get(id.toLowerCase()) === id;
  const inner = isId
    ? 'no resource corresponding to this id'
    : `decoding '${text}': not a valid hex id (or well known exception)`;
  throw StatusError.ofHandler(isId ? 'notFound' : 'invalidArgument', {
    ...DETAIL.parties,
    inner,
  });
}
