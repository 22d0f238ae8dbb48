/** `/mirror/exports`: exports on demand, from the order to the downloaded file. */
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { canonicalPartyId, isExportableParty, PARTY_ID_BYTES_MAX } from '../../core/ids.ts';
import { floorSecond, type Micros, parseInstant } from '../../core/time.ts';
import { RUN_SCHEMA } from '../../runs/run-document.ts';
import { EventStreams } from '../http/events.ts';
import { goneSignal } from '../http/gone.ts';
import { parseRange } from '../http/ranges.ts';
import { BY_ID, FLAG, sent, taken, TEXT, TEXT_OR_NULL, UUID } from '../http/schemas.ts';
import { StatusError } from '../http/status-error.ts';
import type { Download } from './downloads.ts';
import type { ExportOrder, ExportOrders } from './export-orders.ts';

const TAGS = ['exports'];
/** What the service numbers errors that have no number of their own. */
const UNMAPPED = 10_000;
const INSTANT = { type: 'string', maxLength: 40 } as const;
const PARTY_ID = { type: 'string', minLength: 1, maxLength: PARTY_ID_BYTES_MAX } as const;
const ORDER = {
  $id: 'ExportOrder',
  ...taken(
    {
      partyId: { ...PARTY_ID, description: 'As the source lists it.' },
      assetId: { type: 'string', pattern: '^[0-9a-fA-F]{64}$' },
      from: {
        ...INSTANT,
        description: 'RFC 3339, inclusive, a whole second. Without it, from the beginning.',
      },
      to: { ...INSTANT, description: 'RFC 3339, exclusive, a whole second. Without it, up to the present.' },
      again: { ...FLAG, description: 'Distrust what is covered in that range, and ask for it anew.' },
    },
    ['partyId'],
  ),
};
const { state, verdict, evidence, queuedAt } = RUN_SCHEMA.properties;
const STATUS = { id: UUID, state, verdict, evidence };
const EXPORT = { $id: 'Export', ...sent(STATUS) };
const RECORD = {
  $id: 'ExportRecord',
  ...sent({
    ...STATUS,
    partyId: TEXT,
    assetId: TEXT_OR_NULL,
    from: TEXT_OR_NULL,
    to: TEXT_OR_NULL,
    queuedAt,
    finishedAt: TEXT_OR_NULL,
  }),
};
const HISTORY = taken({
  partyId: { ...PARTY_ID, description: 'Only orders for this party.' },
  before: { ...UUID, description: 'Only orders older than this one: the next page.' },
  limit: { type: 'integer', minimum: 1, maximum: 500, default: 50 },
});

interface HistoryQuery {
  readonly partyId?: string;
  readonly before?: string;
  readonly limit: number;
}

type OrderBody = Readonly<
  Omit<ExportOrder, 'from' | 'to'> & { readonly from?: string; readonly to?: string }
>;
type ById = FastifyRequest<{ Params: { id: string } }>;
export type ExportJobs = Pick<ExportOrders, keyof ExportOrders>;

/** Adds the routes. */
export function addOrders(server: FastifyInstance, jobs: ExportJobs): void {
  for (const schema of [ORDER, EXPORT, RECORD]) server.addSchema(schema);
  addHistory(server, jobs);
  server.post<{ Body: OrderBody }>(
    '/mirror/exports',
    {
      schema: {
        tags: TAGS,
        summary: 'Order an export',
        body: { $ref: 'ExportOrder#' },
        response: { 202: sent({ id: UUID }) },
      },
    },
    async (request, reply) => {
      const { id } = await jobs.submit(readOrder(request.body));
      return reply.code(202).header('location', `/mirror/exports/${id}`).send({ id });
    },
  );
  server.get(
    '/mirror/exports/:id',
    {
      schema: {
        tags: TAGS,
        summary: 'How an order stands',
        params: BY_ID,
        response: { 200: { $ref: 'Export#' } },
      },
    },
    async (request: ById) => (await jobs.get(request.params.id)) ?? unknownOrder(),
  );
  server.delete(
    '/mirror/exports/:id',
    {
      schema: { tags: TAGS, summary: 'Cancel an order', params: BY_ID, response: { 204: { type: 'null' } } },
    },
    async (request: ById, reply) => {
      if (!(await jobs.cancel(request.params.id))) unknownOrder();
      return reply.code(204).send();
    },
  );
  addBringing(server, jobs);
}

/** What an order brings: progress, then the file. */
function addBringing(server: FastifyInstance, jobs: ExportJobs): void {
  const streams = new EventStreams();
  server.get(
    '/mirror/exports/:id/events',
    {
      schema: {
        tags: TAGS,
        summary: 'Live progress, as server-sent events',
        params: BY_ID,
        produces: ['text/event-stream'],
      },
    },
    async (request: ById, reply) => {
      const { id } = request.params;
      if ((await jobs.get(id)) === undefined) unknownOrder();
      return streams.send(reply, (signal) => jobs.progress(id, signal));
    },
  );
  server.get(
    '/mirror/exports/:id/download',
    {
      schema: {
        tags: TAGS,
        summary: 'The CSV that an order brought',
        params: BY_ID,
        produces: ['text/csv'],
      },
    },
    async (request: ById, reply) => {
      const download = await jobs.openDownload(request.params.id);
      if (download === undefined) throw StatusError.ofGateway('notFound', 'nothing to download (yet)');
      return sendDownload(request, reply, download);
    },
  );
}

function addHistory(server: FastifyInstance, jobs: ExportJobs): void {
  server.get<{ Querystring: HistoryQuery }>(
    '/mirror/exports',
    {
      schema: {
        tags: TAGS,
        summary: 'Orders, newest first',
        querystring: HISTORY,
        response: { 200: sent({ exports: { type: 'array', items: { $ref: 'ExportRecord#' } } }) },
      },
    },
    async ({ query: { partyId, before, limit } }) => ({
      exports: await jobs.list({
        partyId: partyId === undefined ? undefined : readParty(partyId),
        before,
        rowsMax: limit,
      }),
    }),
  );
}

/** @throws StatusError 400 naming the field and what is accepted */
function readOrder(body: OrderBody): ExportOrder {
  const partyId = readParty(body.partyId);
  const from = readInstant('from', body.from);
  const to = readInstant('to', body.to);
  if (from !== undefined && to !== undefined && from >= to) throw refuse('to: give an instant after from');
  return { partyId, assetId: body.assetId?.toLowerCase(), from, to, again: body.again };
}

function readParty(text: string): string {
  const partyId = canonicalPartyId(text);
  if (partyId !== undefined && isExportableParty(partyId)) return partyId;
  throw refuse('partyId: give a party id as the source lists it');
}

function readInstant(name: string, text: string | undefined): Micros | undefined {
  if (text === undefined) return undefined;
  const instant = parseInstant(text);
  if (instant === undefined || floorSecond(instant) !== instant) {
    throw refuse(`${name}: give an RFC 3339 instant of a whole second, for example 2023-05-10T00:00:00Z`);
  }
  return instant;
}

function refuse(inner: string): StatusError {
  return StatusError.ofHandler('invalidArgument', { code: UNMAPPED, message: 'invalid order', inner });
}

function unknownOrder(): never {
  throw StatusError.ofGateway('notFound', 'no order has this id');
}

function sendDownload(request: FastifyRequest, reply: FastifyReply, download: Download): FastifyReply {
  const etag = `"${download.tag}"`;
  const { 'if-range': ifRange, range: asked } = request.headers;
  const range = ifRange === undefined || ifRange === etag ? parseRange(asked, download.bytes) : undefined;
  reply.headers({
    'content-type': 'text/csv',
    'content-disposition': `attachment; filename="${download.fileName}"`,
    'accept-ranges': 'bytes',
    etag,
  });
  if (range === 'unsatisfiable') {
    return reply
      .code(416)
      .removeHeader('content-disposition')
      .headers({ 'content-type': 'text/plain', 'content-range': `bytes */${download.bytes}` })
      .send('');
  }
  const { start, end } = range ?? { start: 0n, end: download.bytes };
  if (range !== undefined)
    reply.code(206).header('content-range', `bytes ${start}-${end - 1n}/${download.bytes}`);
  return reply
    .header('content-length', `${end - start}`)
    .send(Readable.from(download.read({ start, end }, goneSignal(reply)), { objectMode: false }));
}
