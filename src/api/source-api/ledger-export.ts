/** `GET /api/v2/ledgerentry/export`: a party's mirrored ledger as the service would stream it. */
import { once } from 'node:events';
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { errorCode } from '../../errors/errors.ts';
import { canonicalPartyId, isExportableParty, isHexId } from '../../ledger/ids.ts';
import { partyName } from '../../ledger/object-keys.ts';
import { formatInstant, type Micros, SECOND_MICROS } from '../../time/time.ts';
import type { LedgerRange } from '../../ledger/ledger-range.ts';
import { weightOf } from '../kit/compression.ts';
import { goneSignal, limitOpen } from '../kit/events.ts';
import type { SourceApiDeps } from './ports.ts';
import { readQuery } from '../kit/query-text.ts';
import { openRoutes } from '../kit/routes.ts';
import { DETAIL, sendJson, StatusError } from '../kit/status-error.ts';

/** Each holds an object open; the service allows 250 a client. */
const OPEN_EXPORTS_MAX = 32;
const FIELDS = {
  party_id: 'string',
  asset_id: 'string',
  'date_range.start_timestamp': 'int64',
  'date_range.end_timestamp': 'int64',
} as const;
const SECOND_NANOS = 1_000_000_000n;

const INSTANT = z.string().meta({ format: 'int64' }).optional();
/** As OpenAPI tells of it. Nothing is validated by this: see query-text.ts. */
const QUERY = z.object({
  partyId: z.string().describe('As the list has it.'),
  assetId: z.string().optional().describe('64 hex digits; without it, every asset.'),
  'dateRange.startTimestamp': INSTANT.describe(
    'Nanoseconds since 1970, inclusive; parts of a second do not count.',
  ),
  'dateRange.endTimestamp': INSTANT.describe('The same, exclusive.'),
});

/** Bytes of CSV in one message: a multiple of three, so that only the last carries base64 padding. */
const MESSAGE_BYTES_MAX = 768 * 1024;

const mayOpen = limitOpen(OPEN_EXPORTS_MAX);

/**
 * Begins the CSV of a ledger: until its first bytes are there, the status can still tell a failure.
 * @throws StatusError where nothing can be sent
 */
export async function openLedger(
  reply: FastifyReply,
  question: LedgerRange,
  { jobs, log }: SourceApiDeps,
): Promise<Readable> {
  if (!mayOpen(reply))
    throw new StatusError('resourceExhausted', 'client reached max subscription allowed');
  const gone = goneSignal(reply);
  const rows = Readable.from(jobs.stages.readLedger(question, gone), {
    objectMode: false,
  });
  rows.once('error', (error) => {
    if (!gone.aborted)
      log.warn({ err: error, partyId: question.partyId }, 'Export to a client failed');
  });
  await once(rows, 'readable').catch((error: unknown) => {
    throw exportError(error, question);
  });
  reply.header('content-disposition', `attachment;filename=${fileName(question)}`);
  return rows;
}

/** Adds the route. */
export function addLedgerExport(server: FastifyInstance, deps: SourceApiDeps): void {
  openRoutes(server, 'service')(
    'GET /api/v2/ledgerentry/export',
    {
      summary: 'Export the ledger entries of a party as CSV',
      produces: ['text/csv', 'application/json'],
      description:
        'Raw CSV, or with `Accept: application/json` one result/error message a line, `data` in base64. A failure after the first byte ends the stream with an error object.',
      querystring: QUERY,
    },
    async ({ url, headers: { accept } }, reply) => {
      // Thrown outside the envelope: the gateway refuses a query string before the stream exists.
      const given = readQuery(url, FIELDS);
      try {
        const question = readQuestion(given);
        const rows = await openLedger(reply.header('vary', 'Accept'), question, deps);
        // Messages only for those who name JSON and not CSV, or prefer it; anything else is the service's form.
        const isJson =
          weightOf(accept, 'application/json') > weightOf(accept, 'text/csv');
        const body = ledgerBody(rows, isJson, question);
        reply.header('content-type', isJson ? 'application/json' : 'text/csv');
        return await reply.send(Readable.from(body, { objectMode: false }));
      } catch (error) {
        if (!(error instanceof StatusError)) throw error;
        // Streamed operations put their errors into an envelope.
        return sendJson(reply.code(error.statusCode), { error: error.body });
      }
    },
  );
}

/** @throws StatusError as the service's handler words it */
function readQuestion(given: ReturnType<typeof readQuery<typeof FIELDS>>): LedgerRange {
  const { party_id: text = '', asset_id: asset, ...range } = given;
  const partyId = canonicalPartyId(text);
  const assetId = asset?.toLowerCase();
  if (text === '') throw StatusError.ofHandler('invalidArgument', DETAIL.missingPartyId);
  if (partyId === undefined || !isExportableParty(partyId))
    throw StatusError.ofHandler('invalidArgument', DETAIL.invalidPartyId);
  if (assetId !== undefined && !isHexId(assetId))
    throw StatusError.ofHandler('invalidArgument', DETAIL.invalidAssetId);
  const from = wholeSecond(range['date_range.start_timestamp']);
  return { partyId, assetId, from, to: wholeSecond(range['date_range.end_timestamp']) };
}

/** The service drops what is below the second from both bounds. */
function wholeSecond(nanos: bigint | undefined): Micros | undefined {
  if (nanos === undefined) return undefined;
  const rest = ((nanos % SECOND_NANOS) + SECOND_NANOS) % SECOND_NANOS;
  return ((nanos - rest) / SECOND_NANOS) * SECOND_MICROS;
}

function exportError(error: unknown, { partyId }: LedgerRange): StatusError {
  if (error instanceof StatusError) return error;
  if (errorCode(error) === 'LEDGER_NOT_MIRRORED' && error instanceof Error) {
    // To the service a word is no party; a source with such ids has ledgers of them.
    if (!isHexId(partyId))
      return StatusError.ofHandler('invalidArgument', DETAIL.invalidPartyId);
    return StatusError.ofHandler(
      'notFound',
      { ...DETAIL.export, inner: error.message },
      error,
    );
  }
  return StatusError.ofHandler(
    'internal',
    { ...DETAIL.export, inner: errorCode(error) },
    error,
  );
}

/** `ledger_entries_<party>[_<asset>][_<from>][-<to>].csv`, the service's own way of naming it. */
function fileName({ partyId, assetId, from, to }: LedgerRange): string {
  const instant = (time: Micros): string =>
    `${formatInstant(time).slice(0, 19).replaceAll(':', '_')}Z`;
  const asset = assetId === undefined ? '' : `_${assetId}`;
  const start = from === undefined ? '' : `_${instant(from)}`;
  const end = to === undefined ? '' : `-${instant(to)}`;
  return `ledger_entries_${partyName(partyId)}${asset}${start}${end}.csv`;
}

/**
 * A failure after the first byte can no longer change the status; it ends the stream as the service ends it, with the
 * error in the place of the next bytes.
 * @param isJson the result/error messages of the interface document, one JSON message a line
 * @returns the body; it ends normally also where `rows` failed
 */
async function* ledgerBody(
  rows: AsyncIterable<Buffer>,
  isJson: boolean,
  question: LedgerRange,
): AsyncGenerator<Buffer> {
  // The interface wants `extensions` set in the first message; the mirror has none to tell.
  let extensions = ',"extensions":[]';
  try {
    for await (const chunk of rows) {
      if (!isJson) {
        yield chunk;
        continue;
      }
      for (let start = 0; start < chunk.length; start += MESSAGE_BYTES_MAX) {
        const data = chunk.subarray(start, start + MESSAGE_BYTES_MAX).toString('base64');
        yield Buffer.from(
          `{"result":{"contentType":"text/csv","data":"${data}"${extensions}}}\n`,
          'latin1',
        );
        extensions = '';
      }
    }
  } catch (error) {
    const told = JSON.stringify({ error: exportError(error, question).body });
    yield Buffer.from(isJson ? `${told}\n` : told);
  }
}
