/**
 * Pages of parties and of checkpoints. The network's own party is listed without a position: it stands above all
 * others, newest first the first row and oldest first the last. The service leaves it out where it is not on the first
 * page, and sends nothing behind its cursor; whoever follows the cursors here gets every row. Where several checkpoints
 * share a height, the service leaves their order open and its cursor cannot tell them apart; here each has its own.
 */
import { canonicalPartyId, ID_WORDS, NETWORK_PARTY } from '../../core/ids.ts';
import { readQuery } from '../http/query-text.ts';
import { DETAIL, StatusError } from '../http/status-error.ts';
import type { Cursors } from './cursors.ts';
import { type Page, PAGE_FIELDS, readPageRequest, toPage } from './paging.ts';
import type { ListState, ListStore, PartyRow } from './store/read-store.ts';

const PARTY_FIELDS = { party_id: 'string', ...PAGE_FIELDS } as const;
const EVEN_HEX = /^(?:[0-9a-f]{2})+$/i;
const NETWORK: PartyRow = { id: NETWORK_PARTY, pos: null };
/** A page of its own for what is not cut from the list. */
const ALONE = { isForward: true, rowsMax: 1, beyond: undefined } as const;

interface Asked {
  readonly url: string;
  readonly state: ListState;
  readonly store: ListStore;
  readonly cursors: Cursors;
}

/** Answer a request for a page of each list. @throws StatusError as the service words it */
export const LIST_PAGES = {
  async parties({ url, state: { epoch, hasNetwork }, store, cursors }: Asked): Promise<Page> {
    const edgeOf = ({ id, pos }: PartyRow) => ({
      node: { id },
      cursor: cursors.write(`${epoch}`, pos ?? ''),
    });
    const { party_id: partyId, ...paging } = readQuery(url, PARTY_FIELDS);
    // Also where one party is asked for and its page is not cut from the list.
    const request = readPageRequest(paging, epoch, cursors);
    if (partyId !== undefined && partyId !== '')
      return toPage(ALONE, [await findParty(partyId, epoch, store)], edgeOf);
    const { ascending, beyond, rowsMax } = request;
    const isBeyondNetwork = beyond?.[0] === '';
    if (isBeyondNetwork && ascending) return toPage(ALONE, [], edgeOf);
    const from = isBeyondNetwork ? undefined : beyond;
    const rows = await store.slice('parties', { epoch, ascending, beyond: from, rowsMax: rowsMax + 1 });
    const isNetworkHere = hasNetwork && (ascending ? rows.length <= rowsMax : beyond === undefined);
    const networkHere = isNetworkHere ? [NETWORK] : [];
    return toPage(request, ascending ? [...rows, ...networkHere] : [...networkHere, ...rows], edgeOf);
  },

  async checkpoints({ url, state: { epoch }, store, cursors }: Asked): Promise<Page> {
    const request = readPageRequest(readQuery(url, PAGE_FIELDS), epoch, cursors);
    const rowsMax = request.rowsMax + 1;
    const found = await store.slice('checkpoints', { ...request, epoch, rowsMax });
    return toPage(request, found, ({ hash, blockHash, atBlock, copy }) => ({
      node: { hash, blockHash, atBlock },
      cursor: cursors.write(`${epoch}`, atBlock, hash, blockHash, copy),
    }));
  },
};

async function findParty(text: string, epoch: number, store: ListStore): Promise<PartyRow> {
  // Words are taken as they are written, hex in either case.
  const id = EVEN_HEX.test(text) ? text.toLowerCase() : text;
  const found = canonicalPartyId(id) === id ? await store.party(epoch, id) : undefined;
  if (found !== undefined) return found;
  const isId = EVEN_HEX.test(id) || ID_WORDS.get(id.toLowerCase()) === id;
  const inner = isId
    ? 'no resource corresponding to this id'
    : `decoding '${text}': not a valid hex id (or well known exception)`;
  throw StatusError.ofHandler(isId ? 'notFound' : 'invalidArgument', { ...DETAIL.parties, inner });
}
