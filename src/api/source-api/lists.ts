/**
 * The source's own interface, served from the mirror: `GET /api/v2/parties` and
 * `/api/v2/checkpoints`.
 *
 * The network's own party is listed without a position. It stands above all others: the
 * first row if the newest come first, the last if the oldest do. The source leaves it out
 * if it is not on the first page, and sends nothing behind its cursor; here a client that
 * follows the cursors gets every row. If several checkpoints share a height, the source
 * leaves their order open and its cursor cannot distinguish them; here each has its own.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import { canonicalPartyId, ID_WORDS, NETWORK_PARTY } from '../../ledger/ids.ts';
import type { Rows } from '../../postgres/rows.ts';
import { type QueryValues, readQuery } from '../kit/query-text.ts';
import { named, nameSchemas, openRoutes } from '../kit/routes.ts';
import {
  DETAIL,
  RETRY_AFTER_SECONDS,
  sendJson,
  sendStatus,
  StatusError,
} from '../kit/status-error.ts';
import { Cursors } from './cursors.ts';
import {
  type Edge,
  type Page,
  PAGE_FIELDS,
  PAGE_INFO,
  PAGING,
  readPageRequest,
  toPage,
} from './paging.ts';
import * as store from './store/list-rows.ts';

/** How much older than the rows the block in the headers may be; it is never newer. */
const STATE_MAX_AGE_MS = 1_000;
const PARTY_FIELDS = { party_id: 'string', ...PAGE_FIELDS } as const;
const EVEN_HEX = /^(?:[0-9a-f]{2})+$/i;
/** Paging of a page with one row that is not cut from the list. */
const SINGLE_ROW = { isForward: true, rowsMax: 1, beyond: undefined } as const;

/** The source's ids of one byte stand for words: `03` is the party `network`. */
const WORDS_BY_BYTE: ReadonlyMap<string, string> = new Map([
  ['00', 'VOTE'],
  ['03', NETWORK_PARTY],
  ['04', 'XYZalpha'],
  ['05', 'XYZbeta'],
  ['06', 'XYZgamma'],
  ['07', 'XYZdelta'],
  ['08', 'XYZepsilon'],
  ['09', 'fBTC'],
  ['0a', 'fDAI'],
  ['0b', 'fEURO'],
  ['0c', 'fUSDC'],
]);

const PARTY_ID = z
  .string()
  .optional()
  .describe('Only this party; 404 if the mirror has none of that id.');
const CHECKPOINT = z.looseObject({
  hash: z.string(),
  blockHash: z.string(),
  atBlock: z.string().meta({ format: 'uint64' }),
});

/** One request for a page. */
interface ListRequest {
  /** The request target, with its query. */
  readonly url: string;
  readonly state: store.ListState;
  readonly cursors: Cursors;
}

/** How a list is described in OpenAPI, and how a page of it is read. */
interface ListRoute {
  readonly summary: string;
  readonly querystring: z.ZodType;
  readonly node: z.ZodType;
  /** @throws StatusError as the source words it */
  readonly read: (rows: Rows, request: ListRequest) => Promise<Page>;
}

const LISTS: Readonly<Record<store.ListName, ListRoute>> = {
  parties: {
    summary: 'List parties, or look one up',
    querystring: z.object({ partyId: PARTY_ID, ...PAGING.shape }),
    node: z.looseObject({ id: z.string() }),
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
  const readSecret = sharedLoad(() => store.readCursorSecret(rows));
  nameSchemas(server, { PageInfo: PAGE_INFO });
  addList(server, rows, 'parties', readSecret);
  addList(server, rows, 'checkpoints', readSecret);
}

function addList(
  server: FastifyInstance,
  rows: Rows,
  name: store.ListName,
  readSecret: () => Promise<Buffer>,
): void {
  const readState = sharedLoad(
    () => store.readListState(rows, name),
    STATE_MAX_AGE_MS,
  );
  const { summary, querystring, node, read } = LISTS[name];
  const edges = z.array(z.object({ node, cursor: z.string() }));
  const response = {
    200: z.object({ [name]: z.object({ edges, pageInfo: named('PageInfo') }) }),
  };
  const add = openRoutes(server, 'service');
  const schema = { summary, querystring, response };
  add(`GET /api/v2/${name}`, schema, async ({ url }, reply) => {
    const state = await readState();
    const isPretty = /[?&]pretty(?:[=&]|$)/.test(url);
    const indent = isPretty ? 1 : undefined;
    const headers = {
      'x-block-height': state.headHeight,
      'x-block-timestamp': state.headNanos,
      'x-mirror-whole': `${state.isComplete}`,
    };
    try {
      const cursors = new Cursors(await readSecret(), name);
      const page = await read(rows, { url, state, cursors });
      return sendJson(reply.headers(headers), { [name]: page }, indent);
    } catch (error) {
      if (!(error instanceof StatusError)) throw error;
      if (error.statusCode === 503)
        reply.header('retry-after', `${RETRY_AFTER_SECONDS}`);
      // What the source's gateway refuses never reached its handlers, which name the
      // block.
      const isOfGateway = error.body.details.length === 0;
      if (!isOfGateway) reply.headers(headers);
      return sendStatus(reply, error, indent);
    }
  });
}

async function readParties(
  rows: Rows,
  { url, state, cursors }: ListRequest,
): Promise<Page> {
  const { epoch, hasNetwork } = state;
  const edgeOf = ({ id, pos, extra }: store.PartyRow): Edge => ({
    node: { id, ...extra },
    cursor: cursors.write(`${epoch}`, pos ?? ''),
  });
  const { party_id: partyId, ...paging } = readQuery(url, PARTY_FIELDS);
  // The source checks the paging of a lookup too, and then ignores it.
  const request = readPageRequest(paging, epoch, cursors);
  const refuseUnread = () => refuseUnreadList('parties', state, paging);
  if (partyId !== undefined && partyId !== '') {
    const party = await findParty(rows, partyId, epoch, refuseUnread);
    return toPage(SINGLE_ROW, [party], edgeOf);
  }
  refuseUnread();

  const { ascending, beyond, rowsMax } = request;
  const isBeyondNetwork = beyond?.[0] === '';
  if (isBeyondNetwork && ascending) return toPage(SINGLE_ROW, [], edgeOf);
  const slice = {
    ascending,
    beyond: isBeyondNetwork ? undefined : beyond,
    rowsMax: rowsMax + 1,
  };
  const placed = await store.readSlice(rows, 'parties', epoch, slice);
  const isNetworkHere =
    hasNetwork && (ascending ? placed.length <= rowsMax : beyond === undefined);
  if (!isNetworkHere) return toPage(request, placed, edgeOf);

  const network = await store.readParty(rows, epoch, NETWORK_PARTY);
  const networkRows = network === undefined ? [] : [network];
  const all = ascending
    ? [...placed, ...networkRows]
    : [...networkRows, ...placed];
  return toPage(request, all, edgeOf);
}

async function readCheckpoints(
  rows: Rows,
  { url, state, cursors }: ListRequest,
): Promise<Page> {
  const { epoch } = state;
  const query = readQuery(url, PAGE_FIELDS);
  const request = readPageRequest(query, epoch, cursors);
  refuseUnreadList('checkpoints', state, query);
  const slice = { ...request, rowsMax: request.rowsMax + 1 };
  const placed = await store.readSlice(rows, 'checkpoints', epoch, slice);
  return toPage(
    request,
    placed,
    ({ hash, blockHash, atBlock, copy, extra }) => ({
      node: { hash, blockHash, atBlock, ...extra },
      cursor: cursors.write(`${epoch}`, atBlock, hash, blockHash, copy),
    }),
  );
}

/**
 * A list that was never read to its end may lack any row. It is served only to callers
 * that say that a part will do.
 * @throws StatusError 503
 */
function refuseUnreadList(
  name: store.ListName,
  { isComplete }: store.ListState,
  query: QueryValues<typeof PAGE_FIELDS>,
): void {
  if (isComplete || query['mirror.partial'] === true) return;
  throw StatusError.ofHandler('unavailable', {
    ...DETAIL[name],
    inner:
      'the mirror has not read this list to its end yet; wait for the first sync, or ' +
      'take what there is with mirror.partial=true',
  });
}

/**
 * @param refuseUnread is called before an id is called unknown
 * @throws StatusError 404 for an id that is not listed, 400 for text that is not an id
 */
async function findParty(
  rows: Rows,
  text: string,
  epoch: number,
  refuseUnread: () => void,
): Promise<store.PartyRow> {
  // Words count as they are written, hex digits in either case.
  const isHex = EVEN_HEX.test(text);
  const lower = isHex ? text.toLowerCase() : text;
  const id = WORDS_BY_BYTE.get(lower) ?? lower;
  const isCanonical = canonicalPartyId(id) === id;
  const party = isCanonical
    ? await store.readParty(rows, epoch, id)
    : undefined;
  if (party !== undefined) return party;

  if (isHex || ID_WORDS.get(id.toLowerCase()) === id) {
    refuseUnread();
    throw StatusError.ofHandler('notFound', {
      ...DETAIL.parties,
      inner: 'no resource corresponding to this id',
    });
  }
  throw StatusError.ofHandler('invalidArgument', {
    ...DETAIL.parties,
    inner: 'not a valid hex id (or well known exception)',
  });
}
