/** `/mirror/exports`: exports on demand, from the order to the downloaded file. */
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { canonicalPartyId, isExportableParty, PARTY_ID_BYTES_MAX } from '../../core/ids.ts';
import { floorSecond, formatInstant, parseInstant } from '../../core/time.ts';
import { EventStreams } from '../http/answer/events.ts';
import { goneSignal } from '../http/answer/gone.ts';
import { parseRange } from '../http/answer/ranges.ts';
import { BY_ID, type ById, describeRoute, named, toJsonSchema, UUID } from '../http/schemas.ts';
import { StatusError } from '../http/status-error.ts';
import type { Download } from './downloads.ts';
import { type ExportOrder, type ExportOrders, EXPORT_STATUS, ORDER_RECORD } from './export-orders.ts';

/** What the service numbers errors that have no number of their own. */
const UNMAPPED = 10_000;
const INSTANT = z.string().max(40).optional();
const PARTY_ID = z.string().min(1).max(PARTY_ID_BYTES_MAX);
const ORDER = z.strictObject({
  partyId: PARTY_ID.describe('As the source lists it.'),
  assetId: z
    .string()
    .regex(/^[0-9a-fA-F]{64}$/)
    .optional(),
  from: INSTANT.describe('RFC 3339, inclusive, a whole second. Without it, from the beginning.'),
  to: INSTANT.describe('RFC 3339, exclusive, a whole second. Without it, up to the present.'),
  again: z.boolean().optional().describe('Distrust what is covered in that range, and ask for it anew.'),
});
const HISTORY = z.strictObject({
  partyId: PARTY_ID.optional().describe('Only orders for this party.'),
  before: UUID.optional().describe('Only orders older than this one: the next page.'),
  limit: z.int().min(1).max(500).default(50),
});
const SCHEMAS = { ExportOrder: ORDER, Export: EXPORT_STATUS, ExportRecord: ORDER_RECORD };

export type ExportJobs = Pick<ExportOrders, keyof ExportOrders>;

/** Adds the routes. */
export function addOrders(server: FastifyInstance, jobs: ExportJobs): void {
  for (const [name, schema] of Object.entries(SCHEMAS))
    server.addSchema({ $id: name, ...toJsonSchema(schema) });
  server.get<{ Querystring: z.infer<typeof HISTORY> }>(
    '/mirror/exports',
    describeRoute('exports', 'Orders, newest first', {
      querystring: HISTORY,
      response: { 200: z.object({ exports: z.array(named('ExportRecord')) }) },
    }),
    async ({ query: { partyId, ...page } }) => ({
      exports: await jobs.list({ ...page, partyId: partyId === undefined ? undefined : readParty(partyId) }),
    }),
  );
  server.post<{ Body: z.infer<typeof ORDER> }>(
    '/mirror/exports',
    describeRoute('exports', 'Order an export', {
      body: named('ExportOrder'),
      response: { 202: z.object({ id: UUID }) },
    }),
    async (request, reply) => {
      const { id } = await jobs.submit(readOrder(request.body));
      return reply.code(202).header('location', `/mirror/exports/${id}`).send({ id });
    },
  );
  server.get(
    '/mirror/exports/:id',
    describeRoute('exports', 'How an order stands', { params: BY_ID, response: { 200: named('Export') } }),
    async (request: ById) => (await jobs.get(request.params.id)) ?? unknownOrder(),
  );
  server.delete(
    '/mirror/exports/:id',
    describeRoute('exports', 'Cancel an order', { params: BY_ID, response: { 204: z.null() } }),
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
    describeRoute('exports', 'Live progress, as server-sent events', {
      params: BY_ID,
      produces: ['text/event-stream'],
    }),
    async (request: ById, reply) => {
      const { id } = request.params;
      if ((await jobs.get(id)) === undefined) unknownOrder();
      return streams.send(reply, (signal) => jobs.progress(id, signal));
    },
  );
  server.get(
    '/mirror/exports/:id/download',
    describeRoute('exports', 'The CSV that an order brought', { params: BY_ID, produces: ['text/csv'] }),
    async (request: ById, reply) => {
      const download = await jobs.openDownload(request.params.id);
      if (download === undefined) throw StatusError.ofGateway('notFound', 'nothing to download (yet)');
      return sendDownload(request, reply, download);
    },
  );
}

/** @throws StatusError 400 naming the field and what is accepted */
function readOrder({ again, assetId, ...body }: z.infer<typeof ORDER>): ExportOrder {
  const partyId = readParty(body.partyId);
  const from = readInstant('from', body.from);
  const to = readInstant('to', body.to);
  // Both are written alike: texts compare as instants.
  if (from !== undefined && to !== undefined && from >= to) throw refuse('to: give an instant after from');
  return { partyId, assetId: assetId?.toLowerCase(), from, to, again: again === true ? again : undefined };
}

function readParty(text: string): string {
  const partyId = canonicalPartyId(text);
  if (partyId !== undefined && isExportableParty(partyId)) return partyId;
  throw refuse('partyId: give a party id as the source lists it');
}

function readInstant(name: string, text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const instant = parseInstant(text);
  if (instant === undefined || floorSecond(instant) !== instant) {
    throw refuse(`${name}: give an RFC 3339 instant of a whole second, for example 2023-05-10T00:00:00Z`);
  }
  return formatInstant(instant);
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
