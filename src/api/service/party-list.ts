/**
 * Pages of parties. The network's own party is listed without a position: it stands above all others, newest first the
 * first row and oldest first the last. The service leaves it out where it is not on the first page, and sends nothing
 * behind its cursor; whoever follows the cursors here gets every row.
 */
import { canonicalPartyId, ID_WORDS, NETWORK_PARTY } from '../../core/ids.ts';
import type { PartyCursors, PartyPosition } from './cursors.ts';
import { PageShelf } from './page-shelf.ts';
import {
  isAscending,
  neighboursOf,
  type Page,
  PAGE_FIELDS,
  type PageRequest,
  readPageRequest,
  shownOf,
  writePage,
} from './paging.ts';
import { type ListState, type ListStore, POSITION_BYTES } from './store/read-store.ts';
import { readQuery } from '../http/query-text.ts';
import { DETAIL, StatusError } from '../http/status-error.ts';

const FIELDS = { party_id: 'string', ...PAGE_FIELDS } as const;
const EVEN_HEX = /^(?:[0-9a-f]{2})+$/i;
const NODE = { open: '{"id":', close: '}' } as const;
const ALONE = { hasNextPage: false, hasPreviousPage: false } as const;

export interface PartyPageDeps {
  readonly store: ListStore;
  readonly cursors: PartyCursors;
  /** Whether the mirror lists the network's own party. */
  readonly hasNetwork: () => Promise<boolean>;
}

/** Answers requests for parties, until the process ends. @throws StatusError as the service words it */
export function partyPages(deps: PartyPageDeps): (url: string, state: ListState) => Promise<Page> {
  const { store, cursors } = deps;
  const readCursor = (text: string): PartyPosition | undefined => cursors.read(text);
  const shelf = new PageShelf((request, state) => makePage(request, state, deps), readCursor);
  return async (url, state) => {
    const given = readQuery(url, FIELDS);
    // Also where one party is asked for and its page is not cut from the list.
    const request = readPageRequest(given, state.epoch, readCursor);
    if (given.party_id === undefined || given.party_id === '') return shelf.page(request, state);
    const { id, pos } = await oneParty(given.party_id, state, store);
    return writePage(
      'parties',
      { nodes: [JSON.stringify(id)], cursors: [cursorOf(pos, state.epoch, cursors)], ...ALONE },
      NODE,
    );
  };
}

async function makePage(
  request: PageRequest<PartyPosition>,
  { epoch }: ListState,
  { store, cursors, hasNetwork }: PartyPageDeps,
): Promise<Page> {
  const ascending = isAscending(request);
  const rowsMax = request.rowsMax + 1;
  const isBehindNetwork = request.cursor?.pos === null;
  if (ascending && isBehindNetwork) return writePage('parties', { nodes: [], cursors: [], ...ALONE });
  const [{ ids, positions }, isListed] = await Promise.all([
    store.parties({ epoch, ascending, beyond: request.cursor?.pos ?? undefined, rowsMax }),
    hasNetwork(),
  ]);
  const isHere = isListed && (ascending ? ids.length < rowsMax : request.cursor === undefined);
  const withNetwork = (column: readonly string[], network: string): readonly string[] => {
    if (!isHere) return column;
    return ascending ? [...column, network] : [network, ...column];
  };
  return writePage(
    'parties',
    {
      nodes: shownOf(request, withNetwork(ids, NETWORK_PARTY)).map((id) => JSON.stringify(id)),
      cursors: shownOf(request, withNetwork(cursors.ofPositions(epoch, positions), cursors.ofNetwork(epoch))),
      ...neighboursOf(request, ids.length + (isHere ? 1 : 0)),
    },
    NODE,
  );
}

function cursorOf(pos: bigint | null, epoch: number, cursors: PartyCursors): string {
  if (pos === null) return cursors.ofNetwork(epoch);
  const position = Buffer.alloc(POSITION_BYTES);
  position.writeBigInt64BE(pos);
  return cursors.ofPositions(epoch, position).join('');
}

async function oneParty(
  text: string,
  state: ListState,
  store: ListStore,
): Promise<{ readonly id: string; readonly pos: bigint | null }> {
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
