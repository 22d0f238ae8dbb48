/**
 * `/mirror/exports`: exports on demand. Each one is a run, identified by the run's id and
 * queued ahead of nightly exports.
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import {
  canonicalPartyId,
  isExportableParty,
  isHexId,
  PARTY_ID_BYTES_MAX,
} from '../../ledger/ids.ts';
import {
  floorSecond,
  formatInstant,
  parseInstant,
  readInstant,
} from '../../time/time.ts';
import type { LedgerRange } from '../../ledger/ledger-range.ts';
import { enqueueRun } from '../../runs/enqueue.ts';
import type { JobDeps } from '../../runs/job.ts';
import { RUN, type RunDocument } from '../../runs/run-schema.ts';
import type { Run } from '../../runs/store/run-store.ts';
import { followEvents } from '../kit/events.ts';
import type { MirrorDeps } from './ports.ts';
import {
  BY_ID,
  openRoutes,
  named,
  nameSchemas,
  TEXT_OR_NULL,
  UUID,
} from '../kit/routes.ts';
import { StatusError } from '../kit/status-error.ts';
import type { SendDownload } from './download.ts';
import { EVENT_STREAM, FOLLOWING } from './runs.ts';

/**
 * Maximum number of unfinished on-demand exports. Each is a run that is kept forever, and
 * it takes precedence over nightly exports.
 */
const ORDERS_OPEN_MAX = 200;
/** The source's code for errors that have no code of their own. */
const UNMAPPED = 10_000;

const ASSET_ID = /^[0-9a-fA-F]{64}$/;
const INSTANT = z.string().max(40).optional();
const PARTY_ID = z.string().min(1).max(PARTY_ID_BYTES_MAX);

/** A requested export; it is stored as the parameters of its run. */
const EXPORT_ORDER = z.strictObject({
  partyId: PARTY_ID.describe('As the source lists it.'),
  assetId: z.string().regex(ASSET_ID).optional(),
  from: INSTANT.describe(
    'RFC 3339, inclusive, a whole second. Without it, from the beginning.',
  ),
  to: INSTANT.describe(
    'RFC 3339, exclusive, a whole second. Without it, up to the present.',
  ),
  again: z
    .boolean()
    .optional()
    .describe('Distrust what is covered in that range, and ask for it anew.'),
});
type ExportOrder = z.infer<typeof EXPORT_ORDER>;

const ORDERS_QUESTION = z.strictObject({
  partyId: PARTY_ID.optional().describe('Only orders for this party.'),
  before: UUID.optional().describe(
    'Only orders older than this one: the next page.',
  ),
  limit: z.int().min(1).max(500).default(50),
});

const EXPORT_STATUS = RUN.pick({
  id: true,
  state: true,
  verdict: true,
  evidence: true,
});

/** The requested range; parts that were not specified are null. */
const ASKED = z.object({
  assetId: TEXT_OR_NULL,
  from: TEXT_OR_NULL,
  to: TEXT_OR_NULL,
});

/** One entry in the list of on-demand exports. Times are RFC 3339. */
const ORDER_RECORD = EXPORT_STATUS.extend({
  partyId: z.string(),
  ...ASKED.shape,
  ...RUN.pick({ queuedAt: true, finishedAt: true }).shape,
});

const LIST = {
  summary: 'Orders, newest first',
  querystring: ORDERS_QUESTION,
  response: { 200: z.object({ exports: z.array(named('ExportRecord')) }) },
};
const ORDER = {
  summary: 'Order an export',
  body: named<ExportOrder>('ExportOrder'),
  response: { 202: z.object({ id: UUID }) },
};
const READ = {
  summary: 'How an order stands',
  params: BY_ID,
  response: { 200: named('Export') },
};
const CANCEL = {
  summary: 'Cancel an order',
  params: BY_ID,
  response: { 204: z.null() },
};
const EVENTS = {
  summary: 'Live progress, as server-sent events',
  ...EVENT_STREAM,
};
const DOWNLOAD = {
  summary: 'The CSV that an order brought',
  description:
    'A ledger of which not all that was ordered is known is a 404; with `partial`, what ' +
    'there is of it is sent, and `X-Mirror-Missing` lists the rest. A range of bytes can ' +
    'be asked for, with `If-Range`.',
  hasHead: true,
  params: BY_ID,
  querystring: z.strictObject({ partial: z.boolean().default(false) }),
  produces: ['text/csv'],
};

function toStatus({ runId, state, verdict, evidence }: RunDocument) {
  return { id: runId, state, verdict, evidence };
}

function toRecord(run: Run): z.infer<typeof ORDER_RECORD> {
  const { subject: partyId, queuedAt, finishedAt } = run;
  return { ...toStatus(run), partyId, ...askedBy(run), queuedAt, finishedAt };
}

function askedBy({ params }: Run): z.infer<typeof ASKED> {
  const {
    assetId = null,
    from = null,
    to = null,
  } = ASKED.partial().parse(params);
  return { assetId, from, to };
}

/**
 * Returns the range to download; undefined if the export has not finished or there is
 * nothing to download.
 */
function rangeOf(run: Run | undefined): LedgerRange | undefined {
  if (
    run?.kind !== 'export' ||
    run.verdict === null ||
    run.verdict === 'failed'
  )
    return undefined;
  const { assetId, from, to } = askedBy(run);
  const instant = (text: string | null) =>
    text === null ? undefined : readInstant(text);
  return {
    partyId: run.subject,
    assetId: assetId ?? undefined,
    from: instant(from),
    to: instant(to),
  };
}

/**
 * Queues an export and returns its id. If an identical export is still unfinished,
 * nothing is queued, and that export's id is returned.
 */
async function submit(
  { partyId, ...asked }: ExportOrder,
  jobs: JobDeps,
): Promise<string> {
  if (
    !isHexId(partyId) &&
    (await jobs.stages.listedParties(partyId))[0] !== partyId
  )
    throw new StatusError(
      'invalidArgument',
      'partyId: no such party is listed',
    );
  if ((await jobs.runs.openOrders()) >= ORDERS_OPEN_MAX) {
    const state = `${ORDERS_OPEN_MAX} orders are open already`;
    throw new StatusError(
      'resourceExhausted',
      `${state}; wait for some of them, or cancel them`,
    );
  }
  const params = { ...asked, isOrdered: true };
  const { run, found } = await jobs.runs.order({
    kind: 'export',
    subject: partyId,
    params,
  });
  if (found === 'none') await enqueueRun(run, jobs);
  return run.runId;
}

/** Adds the routes. */
export function addExports(
  server: FastifyInstance,
  deps: MirrorDeps,
  sendDownload: SendDownload,
): void {
  const { jobs, status } = deps;
  const find = async (id: string): Promise<RunDocument> => {
    const run = await status.run(id);
    if (run?.kind !== 'export')
      throw new StatusError('notFound', 'no order has this id');
    return run;
  };
  nameSchemas(server, {
    ExportOrder: EXPORT_ORDER,
    Export: EXPORT_STATUS,
    ExportRecord: ORDER_RECORD,
  });
  const add = openRoutes(server, 'exports');
  add('GET /mirror/exports', LIST, async ({ query: { partyId, ...page } }) => {
    const subject = partyId === undefined ? undefined : readParty(partyId);
    return {
      exports: (await jobs.runs.list({ kind: 'export', subject, ...page })).map(
        toRecord,
      ),
    };
  });
  add('POST /mirror/exports', ORDER, async ({ body }, reply) => {
    const id = await submit(readOrder(body), jobs);
    return reply
      .code(202)
      .header('location', `/mirror/exports/${id}`)
      .send({ id });
  });
  add('GET /mirror/exports/:id', READ, async ({ params: { id } }) =>
    toStatus(await find(id)),
  );
  add(
    'DELETE /mirror/exports/:id',
    CANCEL,
    async ({ params: { id } }, reply) => {
      await find(id);
      await jobs.runs.requestCancel(id);
      return reply.code(204).send();
    },
  );
  add('GET /mirror/exports/:id/events', EVENTS, ({ params: { id } }, reply) => {
    const read = async () => ({
      ...toStatus(await find(id)),
      progress: await jobs.progress.read(id),
    });
    return followEvents(reply, read, FOLLOWING);
  });
  add('GET /mirror/exports/:id/download', DOWNLOAD, async (request, reply) => {
    const { params, query } = request;
    const { partial: isPartial } = query;
    const ledger = rangeOf(await jobs.runs.get(params.id));
    if (ledger === undefined)
      throw new StatusError('notFound', 'nothing to download (yet)');
    return sendDownload(request, reply, { ...ledger, isPartial });
  });
}

/**
 * Validates an export request, and normalizes its ids and times.
 * @throws StatusError 400 that names the invalid field and what it accepts
 */
function readOrder({ again, assetId, ...body }: ExportOrder): ExportOrder {
  const partyId = readParty(body.partyId);
  const from = readSecond('from', body.from);
  const to = readSecond('to', body.to);
  // Both are in the same format, so comparing the strings compares the instants.
  if (from !== undefined && to !== undefined && from >= to)
    throw refuse('to: give an instant after from');
  return {
    partyId,
    assetId: assetId?.toLowerCase(),
    from,
    to,
    again: again === true ? again : undefined,
  };
}

function readParty(text: string): string {
  const partyId = canonicalPartyId(text);
  if (partyId !== undefined && isExportableParty(partyId)) return partyId;
  throw refuse('partyId: give a party id as the source lists it');
}

function readSecond(
  name: string,
  text: string | undefined,
): string | undefined {
  if (text === undefined) return undefined;
  const instant = parseInstant(text);
  if (instant !== undefined && floorSecond(instant) === instant)
    return formatInstant(instant);
  throw refuse(
    `${name}: give an RFC 3339 instant of a whole second, for example ` +
      '2023-05-10T00:00:00Z',
  );
}

function refuse(inner: string): StatusError {
  return StatusError.ofHandler('invalidArgument', {
    code: UNMAPPED,
    message: 'invalid order',
    inner,
  });
}
