/** Serves the two lists as of the network's head. */
import { z } from 'zod';
import { errorLine } from '../../errors/errors.ts';
import { canonicalId, NETWORK_PARTY } from '../../ledger/ids.ts';
import { parseInstant } from '../../time/time.ts';
import {
  rfc3339Nano,
  type Head,
  type Network,
  type PartyRow,
} from '../network/network.ts';
import {
  GatewayError,
  ServiceError,
  type Answer,
  type Headers,
  type StatusName,
} from './errors.ts';
import {
  openPage,
  readPageParameters,
  type Edge,
  type Listing,
  type Page,
} from './paging.ts';
import { Query } from './query.ts';
import type { Admission } from './rate-limit.ts';

const JSON_TYPE: Headers = { 'Content-Type': 'application/json' };
/**
 * A handler adds gRPC's content type to its headers, so an error from a handler has two
 * content types.
 */
const JSON_AND_GRPC: Headers = {
  'Content-Type': ['application/json', 'application/grpc'],
};
/**
 * The first row of every network. It has no time, so it cannot be compared with any
 * cursor.
 */
const NETWORK_EDGE = partyEdge(NETWORK_PARTY, '01', null);
/** The approximate size of one edge in the service's own encoding. */
const PARTY_EDGE_BYTES = 330;
const CHECKPOINT_EDGE_BYTES = 180;
/** The service looks up hex ids of any length, although no party's id is short. */
const HEX = /^(?:[0-9a-f]{2})*$/i;

/**
 * Responds to one list call.
 * @param admit applies the rate limit, which is behind the gateway
 */
export function answerList(
  network: Network,
  list: 'parties' | 'checkpoints',
  queryText: string,
  admit: () => Admission,
): Answer {
  const head = network.head();
  let headers: Headers = {};
  try {
    const query = new Query(queryText);
    const partyId = query.text('party_id') ?? '';
    const parameters = readPageParameters(query);
    const { refused, headers: ofLimit } = admit();
    const micros = head.block === 0 ? 0n : network.chain.timeOf(head.block);
    headers = {
      ...ofLimit,
      'X-Block-Height': `${head.block}`,
      'X-Block-Timestamp': `${micros * 1000n}`,
    };
    if (refused !== undefined) throw refused;
    const cutPage = openPage(parameters);
    const open = list === 'parties' ? openPartyList : openCheckpointList;
    const isLookup = list === 'parties' && partyId !== '';
    const page = isLookup
      ? pageOfParty(network, partyId, head)
      : cutPage(open(network, head));
    const { edges: found, ...flags } = page;
    const edges = found.map(({ node, cursor }) => ({
      node,
      cursor: Buffer.from(cursor).toString('base64'),
    }));
    const ends = {
      startCursor: edges[0]?.cursor ?? '',
      endCursor: edges.at(-1)?.cursor ?? '',
    };
    const json = { [list]: { edges, pageInfo: { ...flags, ...ends } } };
    const body = JSON.stringify(json, undefined, query.has('pretty') ? 1 : 0);
    return { status: 200, headers: { ...JSON_TYPE, ...headers }, body };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    const type = error instanceof GatewayError ? JSON_TYPE : JSON_AND_GRPC;
    return {
      status: error.status,
      headers: { ...type, ...headers },
      body: error.body,
    };
  }
}

export function openPartyList(
  { parties, chain }: Network,
  head: Head,
): Listing {
  const count = parties.countBy(head.block);
  return {
    from: 0,
    to: count + 1,
    nullRows: 1,
    edgeBytes: PARTY_EDGE_BYTES,
    failed: partiesFailed,
    edges: (from, to) => {
      const edges = Array.from(
        parties.rows(from, Math.min(to, count)),
        describeParty,
      );
      return to > count && to > from ? [...edges, NETWORK_EDGE] : edges;
    },
    place: (cursor) => {
      const {
        id = '',
        txhash = '',
        vegatime,
      } = readCursor(partyCursor, cursor, partiesFailed);
      if (vegatime === undefined)
        return id === '' && txhash === '' ? 'empty' : 'null';
      const instant = parseInstant(vegatime);
      // The bytes that an id is sorted by, in hex. The word `network` stands for a single
      // byte.
      const key = id === NETWORK_PARTY ? '03' : id.toLowerCase();
      if (instant === undefined || !HEX.test(key))
        throw partiesFailed('cannot parse cursor');
      const block = chain.firstFrom(instant);
      const ids =
        chain.timeOf(block) === instant
          ? parties.arrivedIn(block).map((row) => row.id)
          : [];
      const floor =
        parties.countBy(block - 1) + ids.filter((other) => other < key).length;
      return { floor, ceil: floor + (ids.includes(key) ? 1 : 0) };
    },
  };
}

/**
 * Returns the page of a list filtered by party id: one edge, whatever page was requested.
 * @throws ServiceError 400 if `partyId` is not an id, 404 if no party has it
 */
function pageOfParty({ parties }: Network, partyId: string, head: Head): Page {
  const page = (edge: Edge) => ({
    edges: [edge],
    hasNextPage: false,
    hasPreviousPage: false,
  });
  const isId = canonicalId(partyId) === partyId;
  if (!isId && !HEX.test(partyId)) {
    const inner = 'not a valid hex id (or well known exception)';
    throw partiesFailed(inner, 'InvalidArgument');
  }
  if (partyId === NETWORK_PARTY) return page(NETWORK_EDGE);
  const index = parties.indexOf(
    isId ? partyId : partyId.toLowerCase(),
    head.block,
  );
  if (index === undefined)
    throw partiesFailed('no resource corresponding to this id', 'NotFound');
  return page(describeParty(parties.row(index)));
}

function describeParty({ id, txHash, firstSeen }: PartyRow): Edge {
  return partyEdge(id, txHash, rfc3339Nano(firstSeen));
}

function partyEdge(id: string, txHash: string, vegaTime: string | null): Edge {
  return {
    node: { id },
    cursor: JSON.stringify({ ID: id, TxHash: txHash, VegaTime: vegaTime }),
  };
}

function partiesFailed(
  inner: string,
  status: StatusName = 'Internal',
): ServiceError {
  return new ServiceError(status, {
    code: 50001,
    message: 'failed to get parties',
    inner,
  });
}

export function openCheckpointList(
  { checkpoints }: Network,
  head: Head,
): Listing {
  return {
    ...checkpoints.visible(head),
    nullRows: 0,
    edgeBytes: CHECKPOINT_EDGE_BYTES,
    failed: checkpointsFailed,
    edges: (from, to, { isDescending, isCursored }) => {
      const turn = (isDescending ? 1 : 0) + (isCursored ? 2 : 0);
      return Array.from({ length: to - from }, (_, nth) => {
        const { atBlock, ...node } = checkpoints.row(from + nth, turn);
        const cursor = JSON.stringify({ blockHeight: atBlock });
        return { node: { ...node, atBlock: `${atBlock}` }, cursor };
      });
    },
    place: (cursor) => {
      const { blockheight = 0 } = readCursor(
        checkpointCursor,
        cursor,
        checkpointsFailed,
      );
      if (blockheight === 0) return 'empty';
      return {
        floor: checkpoints.floor(blockheight),
        ceil: checkpoints.floor(blockheight + 1),
      };
    },
  };
}

function checkpointsFailed(inner: string): ServiceError {
  return new ServiceError('Internal', {
    code: 290001,
    message: 'failed to get checkpoints',
    inner,
  });
}

const cursorJson = z.record(z.string(), z.unknown()).nullable();
const partyCursor = z
  .object({ id: z.string(), txhash: z.string(), vegatime: z.string() })
  .partial();
const checkpointCursor = z.object({ blockheight: z.int() }).partial();

/**
 * Reads a cursor's JSON as Go does: names are case-insensitive, unknown fields are
 * ignored, and null is treated as absent.
 * @throws ServiceError 500, because the service reads a cursor only when it builds the
 *   query
 */
function readCursor<Fields>(
  shape: z.ZodType<Fields>,
  text: string,
  failed: Listing['failed'],
): Fields {
  try {
    const given = Object.entries(cursorJson.parse(JSON.parse(text)) ?? {});
    const present = given.filter(([, value]) => value !== null);
    return shape.parse(
      Object.fromEntries(
        present.map(([name, value]) => [name.toLowerCase(), value]),
      ),
    );
  } catch (error) {
    throw failed(errorLine(error));
  }
}
