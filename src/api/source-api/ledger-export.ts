/**
 * The source-compatible API: `GET /api/v2/ledgerentry/export` streams a party's ledger as
 * the source would. Like the source, it sends CSV regardless of the Accept header.
 */
import { once } from 'node:events';
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import { errorCode, PermanentError } from '../../errors/errors.ts';
import type { LedgerReading } from '../../exports/reading/read-ledger.ts';
import {
  canonicalPartyId,
  isExportableParty,
  isHexId,
} from '../../ledger/ids.ts';
import type { LedgerQuery, LedgerRange } from '../../ledger/ledger-range.ts';
import { partyName } from '../../ledger/object-keys.ts';
import { formatInstant, type Micros, SECOND_MICROS } from '../../time/time.ts';
import { goneSignal, limitOpen, type TakePlace } from '../kit/events.ts';
import { type QueryValues, readQuery } from '../kit/query-text.ts';
import { openRoutes } from '../kit/routes.ts';
import { DETAIL, sendJson, StatusError } from '../kit/status-error.ts';
import {
  addKnownHeaders,
  addKnownOfError,
  addProvenTime,
} from './known-headers.ts';
import type { SourceApiDeps } from './ports.ts';

/**
 * Maximum number of concurrent exports; each keeps an object open. The source allows 250
 * per client.
 */
const OPEN_EXPORTS_MAX = 32;
const FIELDS = {
  party_id: 'string',
  asset_id: 'string',
  'date_range.start_timestamp': 'int64',
  'date_range.end_timestamp': 'int64',
  'mirror.partial': 'bool',
} as const;
const SECOND_NANOS = 1_000_000_000n;

const INSTANT = z.string().meta({ format: 'int64' }).optional();
/**
 * The query as OpenAPI describes it. This schema does not validate it: see query-text.ts.
 */
const QUERY = z.object({
  partyId: z.string().describe('As the list has it.'),
  assetId: z
    .string()
    .optional()
    .describe('64 hex digits; without it, every asset.'),
  'dateRange.startTimestamp': INSTANT.describe(
    'Nanoseconds since 1970, inclusive; parts of a second do not count.',
  ),
  'dateRange.endTimestamp': INSTANT.describe(
    'Nanoseconds since 1970, exclusive; parts of a second do not count.',
  ),
  'mirror.partial': z
    .boolean()
    .optional()
    .describe(
      'Take what the mirror knows of the range. Without it, a range that is not ' +
        'wholly known is a 404.',
    ),
});

const SCHEMA = {
  summary: 'Export the ledger entries of a party as CSV',
  produces: ['text/csv'],
  description:
    'A failure after the first byte ends the CSV with an error object.',
  querystring: QUERY,
};

/** Counts the open exports of this process. */
const takeExport = limitOpen(OPEN_EXPORTS_MAX);

/** A ledger that is open for reading by a client. */
export interface OpenLedger {
  readonly reading: LedgerReading;
  /**
   * Starts reading and waits for the first bytes, so that an early failure can still be
   * reported by an HTTP status.
   * @param start how many bytes to skip at the beginning
   * @throws StatusError if nothing can be sent
   */
  rows(start?: bigint): Promise<Readable>;
}

/**
 * Opens the CSV of a ledger, and sets the headers that say which part of it is known.
 * @param takePlace limits how many ledgers are open at the same time
 * @throws StatusError if nothing can be sent
 */
export async function openLedger(
  reply: FastifyReply,
  query: LedgerQuery,
  { jobs, log }: SourceApiDeps,
  takePlace: TakePlace = takeExport,
): Promise<OpenLedger> {
  if (!takePlace(reply))
    throw new StatusError(
      'resourceExhausted',
      'client reached max subscription allowed',
    );
  const gone = goneSignal(reply);
  const attempt = async <Result>(work: () => Promise<Result>) => {
    try {
      return await work();
    } catch (error) {
      if (error instanceof PermanentError) addKnownOfError(reply, error.meta);
      throw exportError(error, query);
    }
  };
  const reading = await attempt(() => jobs.stages.openLedger(query, gone));
  addKnownHeaders(reply, reading);
  reply.header('content-disposition', `attachment;filename=${fileName(query)}`);
  return {
    reading: { ...reading, measure: () => attempt(() => reading.measure()) },
    rows: (start) =>
      attempt(async () => {
        const rows = Readable.from(reading.rows(start), { objectMode: false });
        rows.once('error', (error) => {
          const { partyId } = query;
          if (!gone.aborted)
            log.warn({ err: error, partyId }, 'Export to a client failed');
        });
        await once(rows, 'readable');
        return rows;
      }),
  };
}

/** Adds the route. */
export function addLedgerExport(
  server: FastifyInstance,
  deps: SourceApiDeps,
): void {
  const add = openRoutes(server, 'service');
  add('GET /api/v2/ledgerentry/export', SCHEMA, async ({ url }, reply) => {
    // Errors in the query have no envelope: the source's gateway refuses the query before
    // the stream begins.
    const query = readQuery(url, FIELDS);
    try {
      const range = readRange(query);
      const ledger = await openLedger(reply, range, deps);
      addProvenTime(reply, ledger.reading);
      const rows = await ledger.rows();
      const body = Readable.from(withErrorAtEnd(rows, range), {
        objectMode: false,
      });
      return await reply.header('content-type', 'text/csv').send(body);
    } catch (error) {
      if (!(error instanceof StatusError)) throw error;
      // Errors of streaming operations are sent in an envelope.
      return sendJson(reply.code(error.statusCode), { error: error.body });
    }
  });
}

/**
 * Returns the ledger and the range that a query requests.
 * @throws StatusError with the message of the source's handler
 */
function readRange(query: QueryValues<typeof FIELDS>): LedgerQuery {
  const { party_id: text = '', asset_id: asset } = query;
  if (text === '')
    throw StatusError.ofHandler('invalidArgument', DETAIL.missingPartyId);
  const partyId = canonicalPartyId(text);
  if (partyId === undefined || !isExportableParty(partyId))
    throw StatusError.ofHandler('invalidArgument', DETAIL.invalidPartyId);
  const assetId = asset?.toLowerCase();
  if (assetId !== undefined && !isHexId(assetId))
    throw StatusError.ofHandler('invalidArgument', DETAIL.invalidAssetId);
  return {
    partyId,
    assetId,
    from: wholeSecond(query['date_range.start_timestamp']),
    to: wholeSecond(query['date_range.end_timestamp']),
    isPartial: query['mirror.partial'],
  };
}

/** Rounds a bound down to the whole second, as the source does for both bounds. */
function wholeSecond(nanos: bigint | undefined): Micros | undefined {
  if (nanos === undefined) return undefined;
  const rest = ((nanos % SECOND_NANOS) + SECOND_NANOS) % SECOND_NANOS;
  return ((nanos - rest) / SECOND_NANOS) * SECOND_MICROS;
}

function exportError(error: unknown, { partyId }: LedgerRange): StatusError {
  if (error instanceof StatusError) return error;
  if (errorCode(error) !== 'LEDGER_NOT_MIRRORED' || !(error instanceof Error)) {
    const detail = { ...DETAIL.export, inner: errorCode(error) };
    return StatusError.ofHandler('internal', detail, error);
  }
  // The source refuses words as party ids. Other sources may list such ids and have
  // ledgers for them, so the mirror refuses such an id only if it has no ledger for it.
  if (!isHexId(partyId))
    return StatusError.ofHandler('invalidArgument', DETAIL.invalidPartyId);
  const detail = { ...DETAIL.export, inner: error.message };
  return StatusError.ofHandler('notFound', detail, error);
}

/**
 * Returns the name that the source gives the file:
 * `ledger_entries_<party>[_<asset>][_<from>][-<to>].csv`.
 */
function fileName({ partyId, assetId, from, to }: LedgerRange): string {
  const asset = assetId === undefined ? '' : `_${assetId}`;
  const start = from === undefined ? '' : `_${timeInName(from)}`;
  const end = to === undefined ? '' : `-${timeInName(to)}`;
  return `ledger_entries_${partyName(partyId)}${asset}${start}${end}.csv`;
}

function timeInName(time: Micros): string {
  return `${formatInstant(time).slice(0, 19).replaceAll(':', '_')}Z`;
}

/**
 * On failure, ends the stream as the source does: the error is written in place of the
 * remaining rows, because the status can no longer change once a byte has been sent.
 * @returns the body; it ends normally even if `rows` fails
 */
async function* withErrorAtEnd(
  rows: AsyncIterable<Buffer>,
  range: LedgerRange,
): AsyncGenerator<Buffer> {
  try {
    yield* rows;
  } catch (error) {
    yield Buffer.from(
      JSON.stringify({ error: exportError(error, range).body }),
    );
  }
}
