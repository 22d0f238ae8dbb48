/** The console's own data. Not an interface for others: it may change with the page. */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import type { ShownSetting } from '../../config/shown-settings.ts';
import { timeZone } from '../../config/value-forms.ts';
import { canonicalPartyId, PARTY_ID_BYTES_MAX } from '../../core/ids.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import type { NightlyPreview } from '../../runs/nightly/nightly-preview.ts';
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import { BY_ID, hideRoute } from '../http/schemas.ts';
import { StatusError } from '../http/status-error.ts';
import { addLakeRoutes } from './lake-routes.ts';
import type { LakeQueries } from './lake-queries.ts';
import {
  ACCOUNT,
  type AccountQuestion,
  ENTRIES,
  type EntriesQuestion,
  FLOWS,
  PARTIES,
  type PartiesQuestion,
} from './questions.ts';
import type { ConsoleLedgers } from './store/console-ledgers.ts';
import type { ConsoleStore } from './store/console-store.ts';

/** Summing up a million segments takes a moment: all who look share it. */
const HISTORY_MAX_AGE_MS = 1_500;
const LINES_MAX_AGE_MS = 1_000;
const PARTY = z.strictObject({ id: z.string().max(PARTY_ID_BYTES_MAX) });
const QUARANTINED = z.strictObject({ limit: z.int().min(1).max(1_000) });

/** What the console needs from the rest of the mirror, beside what the read API has anyway. Times are RFC 3339. */
export interface ConsoleParts {
  readonly store: Pick<ConsoleStore, keyof ConsoleStore>;
  readonly ledgers: Pick<ConsoleLedgers, keyof ConsoleLedgers>;
  readonly lake: LakeQueries;
  readonly settings: readonly ShownSetting[];
  /** The next time the schedule fires; null where nothing is scheduled. */
  nextNightlyRun(): string | null;
  progress(runId: string): Promise<readonly ProgressLine[]>;
  /** Of an export that is in flight, whoever ordered it. */
  exportProgress(partyId: string): Promise<readonly ProgressLine[]>;
  /** What a nightly run that began now would ask the source. */
  preview(): Promise<NightlyPreview>;
  upkeep(): Promise<Upkeep>;
}

/** What an operator looks after beside the runs. */
export interface Upkeep {
  /** Jobs that wait in the queues; null where they cannot be asked. */
  readonly jobsWaiting: number | null;
  /** Of the one that waits the longest, in seconds. */
  readonly oldestSeconds: number;
  /** When the lists are next read again from their oldest row; null where nothing is scheduled. */
  readonly nextAudit: string | null;
  /** Where DATA_DIR lies; decimal text, null where it cannot be told. */
  readonly diskFreeBytes: string | null;
  readonly diskBytes: string | null;
}

interface OfParty<Query = unknown> {
  readonly Params: z.infer<typeof PARTY>;
  readonly Querystring: Query;
}

/** Adds the routes. */
export function addConsoleData(server: FastifyInstance, parts: ConsoleParts): void {
  const { store, lake } = parts;
  const history = sharedLoad(() => store.history(), HISTORY_MAX_AGE_MS);
  const lines = sharedLoad(() => store.lines(), LINES_MAX_AGE_MS);
  server.get('/console/history', hideRoute(), () => history());
  server.get('/console/lines', hideRoute(), async () => ({ lines: await lines() }));
  server.get('/console/settings', hideRoute(), () => ({ settings: parts.settings }));
  server.get('/console/preview', hideRoute(), () => parts.preview());
  server.get<{ Querystring: z.infer<typeof QUARANTINED> }>(
    '/console/quarantined',
    hideRoute({ querystring: QUARANTINED }),
    async ({ query }) => ({ exports: await store.quarantined(query.limit) }),
  );
  server.get<{ Params: z.infer<typeof BY_ID> }>(
    '/console/runs/:id/costs',
    hideRoute({ params: BY_ID }),
    async ({ params }) => ({ stages: await store.costs(params.id) }),
  );
  addLedgers(server, parts.ledgers);
  addLakeRoutes(server, lake);
}

function addLedgers(server: FastifyInstance, ledgers: ConsoleParts['ledgers']): void {
  server.get<{ Querystring: PartiesQuestion }>(
    '/console/parties',
    hideRoute({ querystring: PARTIES }),
    ({ query }) => {
      const { view, after } = query;
      if (view !== 'id' && after !== undefined && !/^\d{1,18}$/.test(after))
        throw refuse('after: no such page');
      return ledgers.parties(query);
    },
  );
  server.get<OfParty>('/console/parties/:id', hideRoute({ params: PARTY }), async ({ params }) => {
    const party = await ledgers.party(readPartyId(params.id));
    if (party === undefined) throw StatusError.ofGateway('notFound', 'no party has this id');
    return party;
  });
  server.get<OfParty<z.infer<typeof FLOWS>>>(
    '/console/parties/:id/flows',
    hideRoute({ params: PARTY, querystring: FLOWS }),
    async ({ params, query }) => {
      if (timeZone.parse(query.zone) === undefined) throw refuse(`zone: give ${timeZone.accepted}`);
      return { days: await ledgers.flows(readPartyId(params.id), query.asset, query.zone) };
    },
  );
  server.get<OfParty<AccountQuestion>>(
    '/console/parties/:id/balance',
    hideRoute({ params: PARTY, querystring: ACCOUNT }),
    async ({ params, query }) => ({ points: await ledgers.balance(readPartyId(params.id), query) }),
  );
  server.get<OfParty<EntriesQuestion>>(
    '/console/parties/:id/entries',
    hideRoute({ params: PARTY, querystring: ENTRIES }),
    ({ params, query }) => ledgers.entries(readPartyId(params.id), query),
  );
}

/** @throws StatusError 404 for what can be no party */
function readPartyId(text: string): string {
  const id = canonicalPartyId(text);
  if (id === undefined) throw StatusError.ofGateway('notFound', 'no party has this id');
  return id;
}

function refuse(message: string): StatusError {
  return StatusError.ofGateway('invalidArgument', message);
}
