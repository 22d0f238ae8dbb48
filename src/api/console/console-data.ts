/** The console's own data. Not an interface for others: it may change with the page. */
import type { FastifyInstance } from 'fastify';
import { canonicalPartyId, PARTY_ID_BYTES_MAX } from '../../core/ids.ts';
import { splitCutId } from '../../core/cut-ids.ts';
import type { ConsoleParts, EntriesQuestion, PartiesQuestion, PartyView } from './console-ports.ts';
import { BY_ID, HIDDEN, taken } from '../http/schemas.ts';
import { addLakeRoutes } from './lake-routes.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import { StatusError } from '../http/status-error.ts';

/** Summing up a million segments takes a moment: all who look share it. */
const HISTORY_MAX_AGE_MS = 1_500;
const LINES_MAX_AGE_MS = 1_000;
const LINES_MAX = 16;
const PARTIES_PAGE = 25;
const QUARANTINED_MAX = 1_000;
const POINTS_MAX = 600;
const PARTY = taken({ id: { type: 'string', maxLength: PARTY_ID_BYTES_MAX } }, ['id']);
const ID = { type: 'string', maxLength: 66 } as const;
const DAY = { type: 'string', format: 'date' } as const;
const ENTRIES_PAGE = 50;
const WORD = { type: 'string', maxLength: 100 } as const;

interface PartiesQuery {
  readonly view: PartyView;
  readonly search: string;
  readonly after?: string;
}

/** Adds the routes. */
export function addConsoleData(server: FastifyInstance, parts: ConsoleParts): void {
  const history = sharedLoad(() => parts.store.history(), HISTORY_MAX_AGE_MS);
  const lines = sharedLoad(() => parts.store.lines(LINES_MAX), LINES_MAX_AGE_MS);
  server.get('/console/history', { schema: HIDDEN }, () => history());
  server.get('/console/lines', { schema: HIDDEN }, async () => ({ lines: await lines() }));
  server.get('/console/settings', { schema: HIDDEN }, () => ({ settings: parts.settings }));
  server.get<{ Querystring: { limit: number } }>(
    '/console/quarantined',
    {
      schema: {
        ...HIDDEN,
        querystring: taken({ limit: { type: 'integer', minimum: 1, maximum: QUARANTINED_MAX } }, ['limit']),
      },
    },
    async (request) => ({ exports: await parts.store.quarantined(request.query.limit) }),
  );
  server.get('/console/preview', { schema: HIDDEN }, () => parts.preview());
  server.get<{ Params: { id: string } }>(
    '/console/runs/:id/costs',
    { schema: { ...HIDDEN, params: BY_ID } },
    async (request) => ({ stages: await parts.store.costs(request.params.id) }),
  );
  addParties(server, parts);
  addEntries(server, parts);
  addLakeRoutes(server, parts.lake);
}

function addParties(server: FastifyInstance, { store }: ConsoleParts): void {
  const querystring = taken({
    view: { type: 'string', enum: ['recent', 'id', 'quarantined'], default: 'id' },
    search: { ...ID, default: '' },
    after: { type: 'string', maxLength: PARTY_ID_BYTES_MAX },
  });
  server.get<{ Querystring: PartiesQuery }>(
    '/console/parties',
    { schema: { ...HIDDEN, querystring } },
    (request) => {
      const { view, search, after } = request.query;
      if (view !== 'id' && after !== undefined && !/^\d{1,18}$/.test(after))
        throw refuse('after: no such page');
      return store.parties({ view, ...soughtBy(search), after, rowsMax: PARTIES_PAGE });
    },
  );
  server.get<{ Params: { id: string } }>(
    '/console/parties/:id',
    { schema: { ...HIDDEN, params: PARTY } },
    async (request) => {
      const party = await store.party(partyId(request.params.id));
      if (party === undefined) throw StatusError.ofGateway('notFound', 'no party has this id');
      return party;
    },
  );
  server.get<{ Params: { id: string }; Querystring: { asset: string; zone: string } }>(
    '/console/parties/:id/flows',
    {
      schema: {
        ...HIDDEN,
        params: PARTY,
        querystring: taken({ asset: ID, zone: { ...WORD, default: 'UTC' } }, ['asset']),
      },
    },
    async (request) => {
      const { asset, zone } = request.query;
      if (!isTimeZone(zone)) throw refuse('zone: give an IANA time zone');
      return { days: await store.flows(partyId(request.params.id), asset, zone) };
    },
  );
  server.get<{ Params: { id: string }; Querystring: { asset: string; type: string; market?: string } }>(
    '/console/parties/:id/balance',
    {
      schema: {
        ...HIDDEN,
        params: PARTY,
        querystring: taken({ asset: ID, type: WORD, market: ID }, ['asset', 'type']),
      },
    },
    async (request) => {
      const { asset, type, market } = request.query;
      const question = { assetId: asset, accountType: type, marketId: market, pointsMax: POINTS_MAX };
      return { points: await store.balance({ partyId: partyId(request.params.id), ...question }) };
    },
  );
}

interface EntriesFilter extends Pick<EntriesQuestion, 'since' | 'until'> {
  readonly asset?: string;
  readonly type?: string;
  readonly after?: string;
}

function addEntries(server: FastifyInstance, { store }: ConsoleParts): void {
  const querystring = taken({
    asset: ID,
    type: WORD,
    since: DAY,
    until: DAY,
    after: { type: 'string', pattern: '^\\d{4}-\\d\\d-\\d\\dT[\\d:.]{8,15}Z~\\d{1,9}$' },
  });
  server.get<{ Params: { id: string }; Querystring: EntriesFilter }>(
    '/console/parties/:id/entries',
    { schema: { ...HIDDEN, params: PARTY, querystring } },
    (request) => {
      const { asset, type, since, until, after } = request.query;
      const [at = '', seen = '0'] = after?.split('~') ?? [];
      return store.entries({
        partyId: partyId(request.params.id),
        assetId: asset,
        transferType: type,
        since,
        until,
        after: after === undefined ? undefined : { at, seen: Number(seen) },
        rowsMax: ENTRIES_PAGE,
      });
    },
  );
}

/** @throws StatusError 404 for what can be no party */
function partyId(text: string): string {
  const id = canonicalPartyId(text);
  if (id === undefined) throw StatusError.ofGateway('notFound', 'no party has this id');
  return id;
}

/** Ids are hex in lower case, or words; one may be given as it is shown cut. */
function soughtBy(search: string): Pick<PartiesQuestion, 'prefix' | 'suffix'> {
  const cut = splitCutId(search.trim().replace(/^0x/i, ''));
  const lower = (text: string): string => (/^[0-9a-f]*$/i.test(text) ? text.toLowerCase() : text);
  return { prefix: lower(cut.prefix), suffix: lower(cut.suffix) };
}

function isTimeZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== '';
  } catch {
    return false;
  }
}

function refuse(message: string): StatusError {
  return StatusError.ofGateway('invalidArgument', message);
}
