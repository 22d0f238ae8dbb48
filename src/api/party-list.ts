/**
 * Pages of parties. The network's own party is listed without a place: newest first it leads the first
 * page, oldest first it ends the list only where that fits on the first page, and nothing lies beyond
 * its cursor. That is how the service lists it, so the pages are equal.
 */
import { canonicalId, NETWORK_PARTY } from '../core/ids.ts';
import type { CursorForm, PartyPosition } from './cursors.ts';
import { cutPage, type Edge, isAscending, PAGE_FIELDS, type PageOf, readPageRequest } from './paging.ts';
import type { ListState, ListStore } from './ports.ts';
import { readQuery } from './query-text.ts';
import { DETAIL, StatusError } from './status-error.ts';

const FIELDS = { party_id: 'string', ...PAGE_FIELDS } as const;
const EVEN_HEX = /^(?:[0-9a-f]{2})+$/i;

interface ListedParty {
  readonly id: string;
  readonly pos: bigint | null;
}

export interface PartyPageDeps {
  readonly store: ListStore;
  readonly cursors: CursorForm<PartyPosition>;
  /** Whether the mirror lists the network's own party. */
  readonly hasNetwork: () => Promise<boolean>;
}

/** @throws StatusError as the service words it */
export async function partyPage(
  url: string,
  state: ListState,
  { store, cursors, hasNetwork }: PartyPageDeps,
): Promise<PageOf<Edge>> {
  const given = readQuery(url, FIELDS);
  const request = readPageRequest(given, state.epoch, (text) => cursors.read(text));
  const edges = (rows: readonly ListedParty[]): readonly Edge[] => {
    const texts = cursors.write(rows.map(({ pos }) => ({ epoch: state.epoch, pos })));
    return rows.map(({ id }, index) => {
      // Of our own making and in letters that need no escape.
      const cursor = texts[index] ?? '';
      return { cursor, json: `{"node":{"id":${JSON.stringify(id)}},"cursor":"${cursor}"}` };
    });
  };
  if (given.party_id !== undefined && given.party_id !== '') {
    const rows = edges([await oneParty(given.party_id, state, store)]);
    return { rows, hasNextPage: false, hasPreviousPage: false };
  }
  if (request.cursor?.pos === null) return { rows: [], hasNextPage: false, hasPreviousPage: false };
  const ascending = isAscending(request);
  const question = {
    epoch: state.epoch,
    ascending,
    beyond: request.cursor?.pos,
    top: state.top,
    rowsMax: request.rowsMax + 1,
  };
  const [placed, isAtBorder] = await Promise.all([
    store.parties(question),
    request.cursor === undefined && hasNetwork(),
  ]);
  const slice = isAtBorder ? withNetwork(placed, ascending) : placed;
  const page = cutPage(request, slice);
  return { ...page, rows: edges(page.rows) };
}

/** Without a place the network sorts above all others, as a missing time does in the service. */
function withNetwork(placed: readonly ListedParty[], ascending: boolean): readonly ListedParty[] {
  const network = { id: NETWORK_PARTY, pos: null };
  return ascending ? [...placed, network] : [network, ...placed];
}

async function oneParty(text: string, state: ListState, store: ListStore): Promise<ListedParty> {
  // Words are taken as they are written, hex in either case.
  const id = EVEN_HEX.test(text) ? text.toLowerCase() : text;
  if (id !== canonicalId(id) && !EVEN_HEX.test(id)) {
    const inner = `decoding '${text}': not a valid hex id (or well known exception)`;
    throw StatusError.ofHandler('invalidArgument', { ...DETAIL.parties, inner });
  }
  const place = await store.party(state.epoch, id);
  if (place !== undefined) return { id, pos: place.pos };
  const inner = 'no resource corresponding to this id';
  throw StatusError.ofHandler('notFound', { ...DETAIL.parties, inner });
}
