/**
 * The two lists as the head sees them, and their JSON. Edges are written as text: a page of a thousand is
 * a few milliseconds' work.
 */
import { canonicalId, NETWORK_PARTY } from '../../core/ids.ts';
import { parseInstant } from '../../core/time.ts';
import type { Chain } from '../network/chain.ts';
import type { Checkpoints } from '../network/checkpoints.ts';
import { ServiceError } from './errors.ts';
import type { Head } from '../network/network.ts';
import type { CursorPlace, Edge, Listing, Page } from './paging.ts';
import type { Parties, PartyRow } from '../network/parties.ts';
import { rfc3339Nano } from '../network/times.ts';

/** The row that every network begins with; it has no time, so no cursor compares with it. */
const NETWORK_EDGE: Edge = edgeOfParty(NETWORK_PARTY, '01', 'null');
/** An edge of a party, and of a checkpoint, in the service's own encoding: about that much. */
const PARTY_EDGE_BYTES = 330;
const CHECKPOINT_EDGE_BYTES = 180;
/** Ids of any length are looked up; that nobody has a short one is another matter. */
const HEX = /^(?:[0-9a-f]{2})*$/i;
const INT64_MAX = 2n ** 63n - 1n;

export class PartyList implements Listing {
  readonly from = 0;
  readonly to: number;
  readonly nullRows = 1;
  readonly edgeBytes = PARTY_EDGE_BYTES;
  readonly #parties: Parties;
  readonly #chain: Chain;
  readonly #zoneMinutes: number;

  constructor(parties: Parties, chain: Chain, head: Head, zoneMinutes: number) {
    this.#parties = parties;
    this.#chain = chain;
    this.#zoneMinutes = zoneMinutes;
    this.to = parties.countBy(head.block) + 1;
  }

  edges(positions: readonly number[]): Edge[] {
    const [start, end] = [positions[0], positions.at(-1)];
    if (start === undefined || end === undefined) return [];
    const [low, high] = [Math.min(start, end), Math.max(start, end)];
    const edges: Edge[] = [];
    for (const row of this.#parties.rows(low, Math.min(high + 1, this.to - 1))) {
      edges.push(this.#edge(row));
    }
    if (high === this.to - 1) edges.push(NETWORK_EDGE);
    return start === low ? edges : edges.toReversed();
  }

  /** The edge of one party by id, or undefined where nobody has it. */
  byId(id: string, head: Head): Edge | undefined {
    if (id === NETWORK_PARTY) return NETWORK_EDGE;
    const index = this.#parties.indexOf(id, head.block);
    return index === undefined ? undefined : this.#edge(this.#parties.row(index));
  }

  place(cursor: string): CursorPlace {
    const fields = readCursor(cursor, PARTY_CURSOR);
    const [id, txHash, time] = [fields.get('id'), fields.get('txhash'), fields.get('vegatime')];
    if ((id ?? '') === '' && (txHash ?? '') === '' && time === undefined) return { kind: 'empty' };
    if (typeof time !== 'string') return { kind: 'null' };
    const instant = parseInstant(time);
    const key = idKey(typeof id === 'string' ? id : '');
    if (instant === undefined || key === undefined) throw partiesFailed('cannot parse cursor');
    const block = this.#chain.firstFrom(instant);
    const floor = this.#parties.countBy(block - 1);
    if (this.#chain.timeOf(block) !== instant) return { kind: 'between', floor, ceil: floor };
    const ids = this.#parties.arrivedIn(block).map((row) => row.id);
    const before = ids.filter((other) => other < key).length;
    return { kind: 'between', floor: floor + before, ceil: floor + before + (ids.includes(key) ? 1 : 0) };
  }

  #edge({ id, txHash, firstSeen }: PartyRow): Edge {
    return edgeOfParty(id, txHash, `"${rfc3339Nano(firstSeen, this.#zoneMinutes)}"`);
  }
}

export class CheckpointList implements Listing {
  readonly from: number;
  readonly to: number;
  readonly nullRows = 0;
  readonly edgeBytes = CHECKPOINT_EDGE_BYTES;
  readonly #checkpoints: Checkpoints;
  readonly #chain: Chain;

  constructor(checkpoints: Checkpoints, chain: Chain, head: Head) {
    this.#checkpoints = checkpoints;
    this.#chain = chain;
    ({ from: this.from, to: this.to } = checkpoints.visible(head.block, head.time));
  }

  edges(positions: readonly number[], query: { descending: boolean; cursored: boolean }): Edge[] {
    const turn = (query.descending ? 1 : 0) + (query.cursored ? 2 : 0);
    return positions.map((position) => {
      const { hash, blockHash, atBlock } = this.#checkpoints.row(position, turn);
      return {
        node: `{"hash":"${hash}","blockHash":"${blockHash}","atBlock":"${atBlock}"}`,
        cursor: `{"blockHeight":${atBlock}}`,
      };
    });
  }

  place(cursor: string): CursorPlace {
    const height = readCursor(cursor, CHECKPOINT_CURSOR).get('blockheight') ?? 0n;
    if (typeof height !== 'bigint') throw checkpointsFailed('cannot parse cursor');
    if (height === 0n) return { kind: 'empty' };
    const block = this.#chain.blockOf(height);
    return {
      kind: 'between',
      floor: this.#checkpoints.floor(block),
      ceil: this.#checkpoints.floor(block + 1),
    };
  }
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

export function partiesFailed(inner: string): ServiceError {
  return new ServiceError('Internal', { code: 50001, message: 'failed to get parties', inner });
}

export function checkpointsFailed(inner: string): ServiceError {
  return new ServiceError('Internal', { code: 290001, message: 'failed to get checkpoints', inner });
}

/**
 * The page of a list that was filtered by party id: one edge, whatever page was asked for.
 * @throws ServiceError 400 where `partyId` is no id, 404 where nobody has it
 */
export function pageOfParty(list: PartyList, partyId: string, head: Head): Page {
  const isId = canonicalId(partyId) === partyId;
  if (!isId && !HEX.test(partyId)) {
    throw new ServiceError('InvalidArgument', {
      code: 50001,
      message: 'failed to get parties',
      inner: `decoding '${partyId}': not a valid hex id (or well known exception)`,
    });
  }
  const edge = list.byId(isId ? partyId : partyId.toLowerCase(), head);
  if (edge === undefined) {
    throw new ServiceError('NotFound', {
      code: 50001,
      message: 'failed to get parties',
      inner: 'no resource corresponding to this id',
    });
  }
  return { edges: [edge], hasNextPage: false, hasPreviousPage: false };
}

function edgeOfParty(id: string, txHash: string, vegaTime: string): Edge {
  return { node: `{"id":"${id}"}`, cursor: `{"ID":"${id}","TxHash":"${txHash}","VegaTime":${vegaTime}}` };
}

/** The bytes an id sorts by, as hex: some words stand for a single byte. */
function idKey(id: string): string | undefined {
  const key = id === NETWORK_PARTY ? '03' : id.toLowerCase();
  return HEX.test(key) ? key : undefined;
}

interface CursorShape {
  fields: Readonly<Record<string, 'string' | 'int64'>>;
  failed: (inner: string) => ServiceError;
}

const PARTY_CURSOR: CursorShape = {
  fields: { id: 'string', txhash: 'string', vegatime: 'string' },
  failed: partiesFailed,
};
const CHECKPOINT_CURSOR: CursorShape = { fields: { blockheight: 'int64' }, failed: checkpointsFailed };

/**
 * Reads a cursor's JSON as Go does: names in any case, unknown fields skipped, null as absent.
 * @throws ServiceError 500: the cursor is only read when the query is built
 */
function readCursor(text: string, shape: CursorShape): Map<string, string | bigint> {
  let json: unknown;
  try {
    json = JSON.parse(text, exactIntegers);
  } catch (error) {
    throw shape.failed(error instanceof Error ? error.message : 'invalid cursor');
  }
  if (typeof json !== 'object' || Array.isArray(json))
    throw shape.failed('json: cannot unmarshal into cursor');
  const fields = new Map<string, string | bigint>();
  for (const [name, value] of Object.entries(json ?? {})) {
    const type = shape.fields[name.toLowerCase()];
    if (type === undefined || value === null) continue;
    const fits = type === 'string' ? typeof value === 'string' : isInt64(value);
    if (!fits) throw shape.failed(`json: cannot unmarshal value into field ${name}`);
    if (typeof value === 'string' || typeof value === 'bigint') fields.set(name.toLowerCase(), value);
  }
  return fields;
}

function exactIntegers(_name: string, value: unknown, context?: { source?: string }): unknown {
  const source = context?.source;
  return typeof value === 'number' && source !== undefined && /^-?\d+$/.test(source) ? BigInt(source) : value;
}

function isInt64(value: unknown): boolean {
  return typeof value === 'bigint' && value <= INT64_MAX && value >= -INT64_MAX - 1n;
}
