/**
 * The two lists as the head sees them, and their JSON. Edges are written as text: a page of a thousand is
 * a few milliseconds' work.
 */
import { z } from 'zod';
import { errorLine } from '../../core/errors.ts';
import { canonicalId, NETWORK_PARTY } from '../../core/ids.ts';
import { parseInstant } from '../../core/time.ts';
import { rfc3339Nano } from '../network/chain.ts';
import type { Head, Network } from '../network/network.ts';
import type { PartyRow } from '../network/parties.ts';
import { ServiceError, type StatusName } from './errors.ts';
import type { Edge, Listing, Page } from './paging.ts';

/** The row that every network begins with; it has no time, so no cursor compares with it. */
const NETWORK_EDGE: Edge = writePartyEdge(NETWORK_PARTY, '01', 'null');
/** An edge of a party, and of a checkpoint, in the service's own encoding: about that much. */
const PARTY_EDGE_BYTES = 330;
const CHECKPOINT_EDGE_BYTES = 180;
/** Ids of any length are looked up; that nobody has a short one is another matter. */
const HEX = /^(?:[0-9a-f]{2})*$/i;

export function openPartyList({ parties, chain }: Network, head: Head): Listing {
  const count = parties.countBy(head.block);
  return {
    from: 0,
    to: count + 1,
    nullRows: 1,
    edgeBytes: PARTY_EDGE_BYTES,
    failed: partiesFailed,
    edges: (from, to) => {
      const edges = Array.from(parties.rows(from, Math.min(to, count)), describeParty);
      return to > count && to > from ? [...edges, NETWORK_EDGE] : edges;
    },
    place: (cursor) => {
      const { id = '', txhash = '', vegatime } = readCursor(partyCursor, cursor, partiesFailed);
      if (vegatime === undefined) return id === '' && txhash === '' ? 'empty' : 'null';
      const instant = parseInstant(vegatime);
      // The bytes an id sorts by, as hex: some words stand for a single byte.
      const key = id === NETWORK_PARTY ? '03' : id.toLowerCase();
      if (instant === undefined || !HEX.test(key)) throw partiesFailed('cannot parse cursor');
      const block = chain.firstFrom(instant);
      const ids = chain.timeOf(block) === instant ? parties.arrivedIn(block).map((row) => row.id) : [];
      const floor = parties.countBy(block - 1) + ids.filter((other) => other < key).length;
      return { floor, ceil: floor + (ids.includes(key) ? 1 : 0) };
    },
  };
}

export function openCheckpointList({ checkpoints, chain }: Network, head: Head): Listing {
  return {
    ...checkpoints.visible(head.block, head.time),
    nullRows: 0,
    edgeBytes: CHECKPOINT_EDGE_BYTES,
    failed: checkpointsFailed,
    edges: (from, to, { isDescending, isCursored }) => {
      const turn = (isDescending ? 1 : 0) + (isCursored ? 2 : 0);
      return Array.from({ length: to - from }, (_, nth) => {
        const { hash, blockHash, atBlock } = checkpoints.row(from + nth, turn);
        return {
          node: `{"hash":"${hash}","blockHash":"${blockHash}","atBlock":"${atBlock}"}`,
          cursor: `{"blockHeight":${atBlock}}`,
        };
      });
    },
    place: (cursor) => {
      const { blockheight = 0n } = readCursor(checkpointCursor, cursor, checkpointsFailed);
      if (blockheight === 0n) return 'empty';
      const block = chain.blockOf(blockheight);
      return { floor: checkpoints.floor(block), ceil: checkpoints.floor(block + 1) };
    },
  };
}

/** The JSON of a page: compact, in the service's order of fields. */
export function pageJson(list: 'parties' | 'checkpoints', page: Page): string {
  const cursors = page.edges.map((edge) => Buffer.from(edge.cursor, 'utf8').toString('base64'));
  const edges = page.edges.map((edge, nth) => `{"node":${edge.node},"cursor":"${cursors[nth]}"}`);
  return (
    `{"${list}":{"edges":[${edges.join(',')}],"pageInfo":{"hasNextPage":${page.hasNextPage},` +
    `"hasPreviousPage":${page.hasPreviousPage},"startCursor":"${cursors[0] ?? ''}",` +
    `"endCursor":"${cursors.at(-1) ?? ''}"}}}`
  );
}

function partiesFailed(inner: string, status: StatusName = 'Internal'): ServiceError {
  return new ServiceError(status, { code: 50001, message: 'failed to get parties', inner });
}

function checkpointsFailed(inner: string): ServiceError {
  return new ServiceError('Internal', { code: 290001, message: 'failed to get checkpoints', inner });
}

/**
 * The page of a list that was filtered by party id: one edge, whatever page was asked for.
 * @throws ServiceError 400 where `partyId` is no id, 404 where nobody has it
 */
export function pageOfParty({ parties }: Network, partyId: string, head: Head): Page {
  const page = (edge: Edge): Page => ({ edges: [edge], hasNextPage: false, hasPreviousPage: false });
  const isId = canonicalId(partyId) === partyId;
  if (!isId && !HEX.test(partyId)) {
    const inner = `decoding '${partyId}': not a valid hex id (or well known exception)`;
    throw partiesFailed(inner, 'InvalidArgument');
  }
  if (partyId === NETWORK_PARTY) return page(NETWORK_EDGE);
  const index = parties.indexOf(isId ? partyId : partyId.toLowerCase(), head.block);
  if (index === undefined) throw partiesFailed('no resource corresponding to this id', 'NotFound');
  return page(describeParty(parties.row(index)));
}

function describeParty({ id, txHash, firstSeen }: PartyRow): Edge {
  return writePartyEdge(id, txHash, `"${rfc3339Nano(firstSeen)}"`);
}

function writePartyEdge(id: string, txHash: string, vegaTime: string): Edge {
  return { node: `{"id":"${id}"}`, cursor: `{"ID":"${id}","TxHash":"${txHash}","VegaTime":${vegaTime}}` };
}

const cursorJson = z.record(z.string(), z.unknown()).nullable();
const partyCursor = z.object({ id: z.string(), txhash: z.string(), vegatime: z.string() }).partial();
const checkpointCursor = z.object({ blockheight: z.int64() }).partial();

/**
 * Reads a cursor's JSON as Go does: names in any case, unknown fields skipped, null as absent.
 * @throws ServiceError 500: the cursor is only read when the query is built
 */
function readCursor<Fields>(
  shape: z.ZodType<Fields>,
  text: string,
  failed: (inner: string) => ServiceError,
): Fields {
  try {
    const json = cursorJson.parse(JSON.parse(text, exactIntegers)) ?? {};
    const given = Object.entries(json).filter(([, value]) => value !== null);
    return shape.parse(Object.fromEntries(given.map(([name, value]) => [name.toLowerCase(), value])));
  } catch (error) {
    throw failed(errorLine(error));
  }
}

function exactIntegers(_name: string, value: unknown, context?: { source?: string }): unknown {
  const source = context?.source;
  return typeof value === 'number' && source !== undefined && /^-?\d+$/.test(source) ? BigInt(source) : value;
}
