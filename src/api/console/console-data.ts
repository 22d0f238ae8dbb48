/** The console's own data. Not an interface for others: it may change with the page. */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import type { ShownSetting } from '../../config/secrets.ts';
import { timeZone } from '../../config/value-forms.ts';
import { canonicalPartyId, PARTY_ID_BYTES_MAX } from '../../core/ids.ts';
import { sharedLoad } from '../../core/shared-load.ts';
import type { NightlyPreview } from '../../runs/nightly/nightly-preview.ts';
import type { ProgressLine } from '../../runs/progress/progress-line.ts';
import { goneSignal } from '../http/events.ts';
import { BY_ID, hideRoutes } from '../http/routes.ts';
import { StatusError } from '../http/status-error.ts';
import { FILE, FILE_TYPES, type LakeQueries, QUESTION } from './lake-queries.ts';
import { ASKED, type ConsoleLedgers } from './store/console-ledgers.ts';
import type { ConsoleStore } from './store/console-store.ts';

/** Summing up a million segments takes a moment: all who look share it. */
const HISTORY_MAX_AGE_MS = 1_500;
const LINES_MAX_AGE_MS = 1_000;
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

/** Adds the routes. */
export function addConsoleData(server: FastifyInstance, parts: ConsoleParts): void {
  const { store, ledgers } = parts;
  const add = hideRoutes(server);
  const history = sharedLoad(() => store.history(), HISTORY_MAX_AGE_MS);
  const lines = sharedLoad(() => store.lines(), LINES_MAX_AGE_MS);
  add('GET /console/history', {}, () => history());
  add('GET /console/lines', {}, async () => ({ lines: await lines() }));
  add('GET /console/settings', {}, () => ({ settings: parts.settings }));
  add('GET /console/preview', {}, () => parts.preview());
  add('GET /console/quarantined', { querystring: QUARANTINED }, async ({ query }) => ({
    exports: await store.quarantined(query.limit),
  }));
  add('GET /console/runs/:id/costs', { params: BY_ID }, async ({ params }) => ({
    stages: await store.costs(params.id),
  }));
  add('GET /console/parties', { querystring: ASKED.parties }, ({ query }) => {
    const { view, after = '0' } = query;
    if (view !== 'id' && !/^\d{1,18}$/.test(after))
      throw new StatusError('invalidArgument', 'after: no such page');
    return ledgers.parties(query);
  });
  const ofParty = { params: z.strictObject({ id: z.string().max(PARTY_ID_BYTES_MAX) }) };
  add('GET /console/parties/:id', ofParty, async ({ params }) => {
    return (await ledgers.party(readPartyId(params.id))) ?? unknownParty();
  });
  add(
    'GET /console/parties/:id/flows',
    { ...ofParty, querystring: ASKED.flows },
    async ({ params, query: { asset, zone } }) => {
      if (timeZone.parse(zone) === undefined)
        throw new StatusError('invalidArgument', `zone: give ${timeZone.accepted}`);
      return { days: await ledgers.flows(readPartyId(params.id), asset, zone) };
    },
  );
  add(
    'GET /console/parties/:id/balance',
    { ...ofParty, querystring: ASKED.balance },
    async ({ params, query }) => ({ points: await ledgers.balance(readPartyId(params.id), query) }),
  );
  add('GET /console/parties/:id/entries', { ...ofParty, querystring: ASKED.entries }, ({ params, query }) =>
    ledgers.entries(readPartyId(params.id), query),
  );
  addLake(server, parts.lake);
}

/** What a statement may do is decided where it runs: it reads the lake and nothing else. */
function addLake(server: FastifyInstance, lake: LakeQueries): void {
  const add = hideRoutes(server);
  add('GET /console/tables', {}, async () => ({ tables: await lake.tables() }));
  add('GET /console/questions', {}, () => ({ questions: lake.questions }));
  add('POST /console/query', { body: QUESTION }, ({ body }, reply) => lake.ask(body, goneSignal(reply)));
  add(
    'POST /console/query/file',
    { body: QUESTION, querystring: FILE },
    async ({ body, query: { format } }, reply) => {
      const file = await lake.file(body, format, goneSignal(reply));
      // What was asked, and the day of the answer.
      const asked = 'question' in body ? body.question : 'query';
      const fileName = `${asked}-${new Date().toISOString().slice(0, 10)}.${format}`;
      reply.headers({
        'content-type': FILE_TYPES[format],
        'content-disposition': `attachment; filename="${fileName}"`,
      });
      return reply.send(file);
    },
  );
}

/** @throws StatusError 404 for what can be no party */
function readPartyId(text: string): string {
  return canonicalPartyId(text) ?? unknownParty();
}

function unknownParty(): never {
  throw new StatusError('notFound', 'no party has this id');
}
