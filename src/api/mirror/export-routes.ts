/** `/mirror/exports`: exports on demand, from the order to the downloaded file. */
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { canonicalPartyId, isExportableParty } from '../../core/ids.ts';
import type { RunDocument } from '../../runs/run-schema.ts';
import { floorSecond, formatInstant, parseInstant } from '../../core/time.ts';
import { type EventStreams, followChanges } from '../http/events.ts';
import type { StatusStore } from '../http/ports.ts';
import { BY_ID, describeRoutes, named, nameSchemas, UUID } from '../http/routes.ts';
import { StatusError } from '../http/status-error.ts';
import type { Download } from './downloads.ts';
import { FOLLOWING, type RunOrders } from './start-runs.ts';
import {
  EXPORT_ORDER,
  EXPORT_STATUS,
  type ExportOrder,
  type ExportOrders,
  ORDER_RECORD,
  ORDERS_QUESTION,
  toStatus,
} from './export-orders.ts';

/** What the service numbers errors that have no number of their own. */
const UNMAPPED = 10_000;
const HISTORY_PAGE = z.object({ exports: z.array(named('ExportRecord')) });

export type ExportJobs = Pick<ExportOrders, keyof ExportOrders>;

/** Adds the routes. */
export function addExports(
  server: FastifyInstance,
  jobs: ExportJobs,
  { runs, status: store }: { readonly runs: RunOrders; readonly status: StatusStore },
  streams: EventStreams,
): void {
  const find = async (id: string): Promise<RunDocument> => {
    const run = await store.run(id);
    if (run?.kind !== 'export') throw new StatusError('notFound', 'no order has this id');
    return run;
  };
  nameSchemas(server, { ExportOrder: EXPORT_ORDER, Export: EXPORT_STATUS, ExportRecord: ORDER_RECORD });
  const add = describeRoutes(server, 'exports');
  add(
    'GET /mirror/exports',
    'Orders, newest first',
    { querystring: ORDERS_QUESTION, response: { 200: HISTORY_PAGE } },
    async ({ query: { partyId, ...page } }) => ({
      exports: await jobs.list({ ...page, partyId: partyId === undefined ? undefined : readParty(partyId) }),
    }),
  );
  add(
    'POST /mirror/exports',
    'Order an export',
    { body: named<ExportOrder>('ExportOrder'), response: { 202: z.object({ id: UUID }) } },
    async ({ body }, reply) => {
      const { id } = await jobs.submit(readOrder(body));
      return reply.code(202).header('location', `/mirror/exports/${id}`).send({ id });
    },
  );
  add(
    'GET /mirror/exports/:id',
    'How an order stands',
    { params: BY_ID, response: { 200: named('Export') } },
    async ({ params: { id } }) => toStatus(await find(id)),
  );
  add(
    'DELETE /mirror/exports/:id',
    'Cancel an order',
    { params: BY_ID, response: { 204: z.null() } },
    async ({ params: { id } }, reply) => {
      await find(id);
      await runs.cancel(id);
      return reply.code(204).send();
    },
  );
  add(
    'GET /mirror/exports/:id/events',
    'Live progress, as server-sent events',
    { params: BY_ID, produces: ['text/event-stream'] },
    async ({ params: { id } }, reply) => {
      await find(id);
      const read = async () => ({ ...toStatus(await find(id)), progress: await runs.progress(id) });
      return streams.send(reply, (signal) => followChanges(read, FOLLOWING, signal));
    },
  );
  add(
    'GET /mirror/exports/:id/download',
    'The CSV that an order brought',
    { params: BY_ID, produces: ['text/csv'] },
    async ({ params, headers }, reply) => {
      const download = await jobs.openDownload(params.id);
      if (download === undefined) throw new StatusError('notFound', 'nothing to download (yet)');
      return sendDownload(headers, reply, download);
    },
  );
}

/** @throws StatusError 400 naming the field and what is accepted */
function readOrder({ again, assetId, ...body }: ExportOrder): ExportOrder {
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

function sendDownload(
  { 'if-range': ifRange, range: asked }: IncomingHttpHeaders,
  reply: FastifyReply,
  download: Download,
): FastifyReply {
  const { bytes, fileName } = download;
  const etag = `"${download.tag}"`;
  const range = ifRange === undefined || ifRange === etag ? parseRange(asked, bytes) : undefined;
  reply.headers({ 'accept-ranges': 'bytes', etag });
  if (range === 'unsatisfiable') {
    reply.code(416).headers({ 'content-type': 'text/plain', 'content-range': `bytes */${bytes}` });
    return reply.send('');
  }
  const { start, end } = range ?? { start: 0, end: bytes };
  if (range !== undefined) reply.code(206).header('content-range', `bytes ${start}-${end - 1}/${bytes}`);
  reply.headers({
    'content-type': 'text/csv',
    'content-disposition': `attachment; filename="${fileName}"`,
    'content-length': end - start,
  });
  return reply.send(download.read({ start, end }));
}

/** @returns undefined where the whole is to be sent: no header, several ranges, or another unit */
function parseRange(
  header: string | undefined,
  bytes: number,
): { start: number; end: number } | 'unsatisfiable' | undefined {
  const [, first = '', last = ''] = /^bytes=(\d*)-(\d*)$/.exec(header?.replaceAll(' ', '') ?? '') ?? [];
  if (first === '' && last === '') return undefined;
  if (first !== '' && last !== '' && Number(last) < Number(first)) return undefined;
  const start = first === '' ? Math.max(0, bytes - Number(last)) : Number(first);
  const end = first === '' || last === '' ? bytes : Math.min(Number(last) + 1, bytes);
  return start >= bytes ? 'unsatisfiable' : { start, end };
}
