/**
 * Pages of parties. The network's own party is listed without a position: it stands above all others, newest first the
 * first row and oldest first the last. The service leaves it out where it is not on the first page, and sends nothing
 * behind its cursor; whoever follows the cursors here gets every row.
 */
import { canonicalPartyId, ID_WORDS, NETWORK_PARTY } from '../../core/ids.ts';
import { readQuery } from '../http/query-text.ts';
import { DETAIL, StatusError } from '../http/status-error.ts';
import type { Cursors } from './cursors.ts';
import { isAscending, type Page, PAGE_FIELDS, type PageRequest, readPageRequest, toPage } from './paging.ts';
import type { ListState, ListStore, PartyRow } from './store/read-store.ts';

const FIELDS = { party_id: 'string', ...PAGE_FIELDS } as const;
const EVEN_HEX = /^(?:[0-9a-f]{2})+$/i;
const NETWORK: PartyRow = { id: NETWORK_PARTY, pos: null };

/** Where a party's cursor stands; `null` for the network's own party, which has no position. */
interface PartyPosition {
  readonly epoch: number;
  readonly pos: bigint | null;
}

export interface PartyPageDeps {
  readonly store: ListStore;
  readonly cursors: Cursors;
  /** Whether the mirror lists the network's own party. */
  readonly hasNetwork: () => Promise<boolean>;
}

/** A page of its own for what is not cut from the list. */
const ALONE: PageRequest<PartyPosition> = {
  direction: 'forward',
  newestFirst: true,
  rowsMax: 1,
  cursor: undefined,
};

/** Answers a request for parties. @throws StatusError as the service words it */
export async function partyPage(url: string, state: ListState, deps: PartyPageDeps): Promise<Page> {
  const { epoch } = state;
  const edgeOf = ({ id, pos }: PartyRow): Page['edges'][number] => ({
    node: { id },
    cursor: deps.cursors.write(`${epoch}`, `${pos ?? ''}`),
  });
  const { party_id: partyId, ...paging } = readQuery(url, FIELDS);
  // Also where one party is asked for and its page is not cut from the list.
  const request = readPageRequest(paging, epoch, (text) => readPosition(text, deps.cursors));
  if (partyId !== undefined && partyId !== '') {
    return toPage(ALONE, [await oneParty(partyId, state, deps.store)], edgeOf);
  }
  const isBehindNetwork = isAscending(request) && request.cursor?.pos === null;
  if (isBehindNetwork) return toPage(ALONE, [], edgeOf);
  return toPage(request, await readSlice(request, epoch, deps), edgeOf);
}

function readPosition(text: string, cursors: Cursors): PartyPosition | undefined {
  const [epoch, pos] = cursors.read(text) ?? [];
  if (epoch === undefined || pos === undefined) return undefined;
  return { epoch: Number(epoch), pos: pos === '' ? null : BigInt(pos) };
}

/** One row more than the page holds, where there is one; the network's own party included. */
async function readSlice(
  request: PageRequest<PartyPosition>,
  epoch: number,
  { store, hasNetwork }: PartyPageDeps,
): Promise<readonly PartyRow[]> {
  const ascending = isAscending(request);
  const rowsMax = request.rowsMax + 1;
  const [rows, isListed] = await Promise.all([
    store.parties({ epoch, ascending, beyond: request.cursor?.pos ?? undefined, rowsMax }),
    hasNetwork(),
  ]);
  const isHere = isListed && (ascending ? rows.length < rowsMax : request.cursor === undefined);
  if (!isHere) return rows;
  return ascending ? [...rows, NETWORK] : [NETWORK, ...rows];
}

async function oneParty(text: string, state: ListState, store: ListStore): Promise<PartyRow> {
  // Words are taken as they are written, hex in either case.
  const id = EVEN_HEX.test(text) ? text.toLowerCase() : text;
  const found = canonicalPartyId(id) === id ? await store.party(state.epoch, id) : undefined;
  if (found !== undefined) return { id, pos: found.pos };
  if (!EVEN_HEX.test(id) && ID_WORDS.get(id.toLowerCase()) !== id) {
    const inner = `decoding '${text}': not a valid hex id (or well known exception)`;
    throw StatusError.ofHandler('invalidArgument', { ...DETAIL.parties, inner });
  }
  const inner = 'no resource corresponding to this id';
  throw StatusError.ofHandler('notFound', { ...DETAIL.parties, inner });
}
