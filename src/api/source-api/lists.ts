/**
 * The source-compatible API: `GET /api/v2/parties` and `/api/v2/checkpoints`.
 *
 * The network's own party is listed without a position. It counts as the newest row: it
 * comes first in newest-first order and last in oldest-first order. The source omits this
 * party unless it is on the first page, and returns nothing after the party's cursor.
 * Here, a client that follows the cursors gets every row. If several checkpoints have the
 * same height, the source does not define their order and its cursor cannot distinguish
 * them; here, each has its own cursor.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import { canonicalPartyId, ID_WORDS, NETWORK_PARTY } from '../../ledger/ids.ts';
import type { Rows } from '../../postgres/api-rows.ts';
import { type QueryValues, readQuery } from '../kit/query-text.ts';
import { named, nameSchemas, openRoutes } from '../kit/routes.ts';
import {
  DETAIL,
  RETRY_AFTER_SECONDS,
  sendJsonText,
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
  writePage,
} from './paging.ts';
import * as store from './store/list-rows.ts';

/**
 * How long the block in the headers may be reused. It may be older than the rows, but
 * never newer.
 */
const STATE_MAX_AGE_MS = 1_000;
const PARTY_FIELDS = { party_id: 'string', ...PAGE_FIELDS } as const;
/** An id that can be written into JSON unchanged. */
const PLAIN_ID = /^[\w-]+$/;
const EVEN_HEX = /^(?:[0-9a-f]{2})+$/i;
/**
 * The page request for a response that has at most one row and is not a slice of the
 * list: for example, a party that is looked up by its id.
 */
const SINGLE_ROW = { isForward: true, rowsMax: 1, beyond: undefined } as const;

/** The words that the source's one-byte ids stand for: `03` is the party `network`. */
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

/** One request for a page of a list. */
interface ListRequest {
  /** The request target, including the query. */
  readonly url: string;
  readonly state: store.ListState;
  readonly cursors: Cursors;
}

/** Describes a list for OpenAPI, and reads a page of it. */
interface ListRoute {
  readonly summary: string;
  readonly querystring: z.ZodType;
  readonly node: z.ZodType;
  /** @throws StatusError with the source's message */
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
      ...(state.provenTo === null
        ? {}
        : { 'x-mirror-known-to': state.provenTo }),
    };
    try {
      const cursors = new Cursors(await readSecret(), name);
      const page = await read(rows, { url, state, cursors });
      return sendJsonText(
        reply.headers(headers),
        writePage(name, page, indent),
      );
    } catch (error) {
      if (!(error instanceof StatusError)) throw error;
      if (error.statusCode === 503)
        reply.header('retry-after', `${RETRY_AFTER_SECONDS}`);
      // Only the source's handlers send the block headers, and a request that its gateway
      // refuses never reaches them.
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
  const { party_id: partyId, ...paging } = readQuery(url, PARTY_FIELDS);
  // The source checks the paging of a lookup too, but then ignores it.
  const request = readPageRequest(paging, epoch, cursors);
  const refuseUnread = () => refuseUnreadList('parties', state, paging);
  if (partyId !== undefined && partyId !== '') {
    const party = await findParty(rows, partyId, epoch, refuseUnread);
    return toPage(SINGLE_ROW, partyEdges([party], epoch, cursors));
  }
  refuseUnread();

  const { ascending, beyond, rowsMax } = request;
  const isBeyondNetwork = beyond?.[0] === '';
  if (isBeyondNetwork && ascending) return toPage(SINGLE_ROW, []);
  const slice = {
    ascending,
    beyond: isBeyondNetwork ? undefined : beyond,
    rowsMax: rowsMax + 1,
  };
  const placed = await store.readPartySlice(rows, epoch, slice);
  const isNetworkHere =
    hasNetwork && (ascending ? placed.length <= rowsMax : beyond === undefined);
  if (!isNetworkHere)
    return toPage(request, partyEdges(placed, epoch, cursors));

  const network = await store.readParty(rows, epoch, NETWORK_PARTY);
  const networkRows = network === undefined ? [] : [network];
  const all = ascending
    ? [...placed, ...networkRows]
    : [...networkRows, ...placed];
  return toPage(request, partyEdges(all, epoch, cursors));
}

/** Only the network's own party has no position. */
function partyEdges(
  parties: readonly store.PartyRow[],
  epoch: number,
  cursors: Cursors,
): readonly Edge[] {
  const places = parties.map(({ pos }) => ({ epoch, pos: pos ?? '0' }));
  const written = cursors.writePositions(places);
  return parties.map(({ id, pos, extra }, index) => ({
    node: partyNode(id, extra),
    cursor: pos === null ? cursors.write(`${epoch}`, '') : `${written[index]}`,
  }));
}

/** Writes a party as JSON; nearly all consist of an id that needs no escapes. */
function partyNode(id: string, extra: store.PartyRow['extra']): string {
  if (extra === null && PLAIN_ID.test(id)) return `{"id":"${id}"}`;
  return JSON.stringify({ id, ...extra });
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
  const placed = await store.readCheckpointSlice(rows, epoch, slice);
  const edges = placed.map(({ hash, blockHash, atBlock, copy, extra }) => ({
    node: JSON.stringify({ hash, blockHash, atBlock, ...extra }),
    cursor: cursors.write(`${epoch}`, atBlock, hash, blockHash, copy),
  }));
  return toPage(request, edges);
}

/**
 * Refuses a list that was never read to its end, because any row may be missing from it.
 * Only callers that accept a partial response get such a list.
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
 * Looks up one party.
 * @param refuseUnread called before an id is reported as unknown
 * @throws StatusError 404 if the id is not listed, 400 if the string is not an id
 */
async function findParty(
  rows: Rows,
  text: string,
  epoch: number,
  refuseUnread: () => void,
): Promise<store.PartyRow> {
  // Words must match exactly; hex digits match in either case.
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
