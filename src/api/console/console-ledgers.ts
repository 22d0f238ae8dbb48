/** The console's routes for parties and their ledgers. */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { timeZone } from '../../config/value-forms.ts';
import {
  canonicalPartyId,
  PARTY_ID_BYTES_MAX,
  splitCutId,
} from '../../ledger/ids.ts';
import { openRoutes } from '../kit/routes.ts';
import { StatusError } from '../kit/status-error.ts';
import { readAccountStatement } from './account-statement.ts';
import type { ConsoleDeps } from './ports.ts';
import * as statements from './store/ledger-statements.ts';

const PARTIES_PAGE = 25;
const { ENTRIES_PAGE, SUMMED_MAX } = statements;
const ID = z.string().max(66);
const WORD = z.string().max(100);
const DAY = z.string().meta({ format: 'date' }).optional();
const INSTANT_AND_ROWS = /^\d{4}-\d\d-\d\dT[\d:.]{8,15}Z~\d{1,9}$/;

const PARTIES = z.strictObject({
  view: z.enum(['recent', 'id', 'quarantined']).default('id'),
  /**
   * An id, in full or abbreviated as the console shows it; used only with the view `id`.
   */
  search: ID.default(''),
  /** The `next` value of the previous page. */
  after: z.string().max(PARTY_ID_BYTES_MAX).optional(),
});
const params = z.strictObject({ id: z.string().max(PARTY_ID_BYTES_MAX) });
const FLOWS = {
  params,
  querystring: z.strictObject({ asset: ID, zone: WORD.default('UTC') }),
};
const BALANCE = {
  params,
  querystring: z.strictObject({ asset: ID, type: WORD, market: ID.optional() }),
};
const ENTRIES = {
  params,
  querystring: z.strictObject({
    asset: ID.optional(),
    type: WORD.optional(),
    /** Days in UTC; both ends are included. */
    since: DAY,
    until: DAY,
    /**
     * The `next` value of the previous page: the instant of its last row, and how many
     * rows of that instant were already shown.
     */
    after: z.string().regex(INSTANT_AND_ROWS).optional(),
  }),
};

const STATEMENT = {
  params,
  querystring: z.strictObject({
    /** A month in UTC, such as `2026-03`. */
    month: z.string().regex(/^20\d\d-(?:0[1-9]|1[0-2])$/),
  }),
};

/** The column by which each view other than `id` orders the parties. */
const ORDERED_BY = {
  recent: 'last_entry_at',
  quarantined: 'quarantined_at',
} as const;

/** Adds the routes. Every page costs the same as the first. */
export function addConsoleLedgers(
  server: FastifyInstance,
  { rows, jobs }: Pick<ConsoleDeps, 'rows' | 'jobs'>,
): void {
  const add = openRoutes(server);
  add(
    'GET /console/parties',
    { querystring: PARTIES },
    async ({ query: { view, search, after } }) => {
      if (view !== 'id' && !/^\d{1,18}$/.test(after ?? '0'))
        throw new StatusError('invalidArgument', 'after: no such page');
      const limit = PARTIES_PAGE + 1;
      const listed =
        view === 'id'
          ? statements.partiesById(
              splitCutId(toListed(search)),
              after ?? '',
              limit,
            )
          : statements.partiesByExport(ORDERED_BY[view], after ?? null, limit);
      const found = await rows('list parties', listed);
      const shown = found.slice(0, PARTIES_PAGE);
      // A party whose assets are requested one by one has one export per asset, but the
      // party is shown once.
      const parties = [
        ...new Map(shown.map((party) => [party.partyId, party])).values(),
      ];
      return {
        parties,
        next: found.length > PARTIES_PAGE ? shown.at(-1)?.key : null,
      };
    },
  );
  add('GET /console/parties/:id', { params }, async ({ params: { id } }) => {
    const partyId = readPartyId(id);
    const [[party], accounts, types] = await Promise.all([
      rows('read a party', statements.partyById(partyId)),
      rows("list a party's accounts", statements.accountsOf(partyId)),
      rows(
        "list a party's transfer types",
        statements.transferTypesOf(partyId),
      ),
    ]);
    if (party === undefined) return unknownParty();
    return {
      ...party,
      summedMax: SUMMED_MAX,
      accounts,
      transferTypes: types.map(({ type }) => type),
    };
  });
  add(
    'GET /console/parties/:id/flows',
    FLOWS,
    async ({ params: { id }, query: { asset, zone } }) => {
      if (timeZone.parse(zone) === undefined)
        throw new StatusError(
          'invalidArgument',
          `zone: give ${timeZone.accepted}`,
        );
      const flows = statements.flowsOf(readPartyId(id), asset, zone);
      return {
        days: await rows("sum up a ledger's flows", flows),
      };
    },
  );
  add(
    'GET /console/parties/:id/balance',
    BALANCE,
    async ({ params: { id }, query }) => {
      const balance = statements.balanceOf(readPartyId(id), {
        assetId: query.asset,
        type: query.type,
        marketId: query.market ?? null,
      });
      return {
        points: await rows("read an account's balance", balance),
      };
    },
  );
  add(
    'GET /console/parties/:id/statement',
    STATEMENT,
    ({ params: { id }, query: { month } }) =>
      readAccountStatement(
        rows,
        readPartyId(id),
        month,
        jobs.sourceAssets ?? [],
      ),
  );
  // Entries are sent newest first.
  add(
    'GET /console/parties/:id/entries',
    ENTRIES,
    async ({ params: { id }, query }) => {
      const { asset, type, since, until, after } = query;
      const [from, seenBefore = '0'] = after?.split('~') ?? [];
      const listed = statements.entriesOf(readPartyId(id), {
        assetId: asset ?? null,
        type: type ?? null,
        since: since ?? null,
        until: until ?? null,
        from: from ?? null,
        seenBefore,
      });
      const found = await rows("list a party's entries", listed);
      const entries = found.slice(0, ENTRIES_PAGE);
      const last = entries.at(-1);
      if (found.length <= ENTRIES_PAGE || last === undefined)
        return { entries, next: null };
      const seen = entries.filter(({ at }) => at === last.at).length;
      // If all rows of the page have the same instant, the next page continues within
      // that instant.
      const before =
        entries[0]?.at === last.at && from === last.at ? Number(seenBefore) : 0;
      return { entries, next: `${last.at}~${before + seen}` };
    },
  );
}

/**
 * Converts an id to the spelling used in the lists: hex digits in lower case, words
 * unchanged.
 */
function toListed(search: string): string {
  const id = search.trim().replace(/^0x/i, '');
  return /^[0-9a-f….]*$/i.test(id) ? id.toLowerCase() : id;
}

/**
 * Parses a party's id and returns its canonical form.
 * @throws StatusError 404 if the string is not a valid party id
 */
function readPartyId(text: string): string {
  return canonicalPartyId(text) ?? unknownParty();
}

function unknownParty(): never {
  throw new StatusError('notFound', 'no party has this id');
}
