/**
 * Serves the export of one party's ledger entries: parses its parameters, and sends the
 * response in chunks of about 1 MiB, as the service does. Nothing is sent until the first
 * chunk is full or all rows have been read.
 */
import { floorSecond, type Micros } from '../../time/time.ts';
import { rfc3339Nano, type Network } from '../network/network.ts';
import { KIND } from '../network/seeded.ts';
import { openRowWriter, RELEASES } from '../release.ts';
import { GatewayError, ServiceError, type Answer } from './errors.ts';
import { Query } from './query.ts';

/** The service sends a chunk as soon as it has this many bytes. */
const PIECE_BYTES = 1_048_576;
const ID = /^[0-9a-f]{64}$/i;
/** Represents an asset id that no asset has. */
const NO_ASSET = -1;

/**
 * Responds to one export call.
 * @param call the number of this call
 * @returns undefined if the request crashes a node of this release
 */
export function answerExport(
  network: Network,
  queryText: string,
  call: number,
): Answer | undefined {
  try {
    const asked = readRequest(new Query(queryText));
    const { dies } = RELEASES[network.settings.release];
    if (dies && asked.from === undefined && asked.to !== undefined)
      return undefined;
    const headers = {
      'Content-Disposition': disposition(asked),
      'Content-Type': 'text/csv',
    };
    return { status: 200, headers, body: csvPieces(network, asked, call) };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    const headers = { 'Content-Type': 'application/json' };
    // On this route, the gateway's JSON writer adds spaces, and a handler's error is sent
    // in chunks, without a length.
    const isOfGateway = error instanceof GatewayError;
    const body = isOfGateway
      ? error.body.replaceAll(',"', ', "')
      : [Buffer.from(`{"error":${error.body}}`)];
    return { status: error.status, headers, body };
  }
}

/** A parsed request for an export. */
interface ExportRequest {
  readonly partyId: string;
  readonly assetId: string | undefined;
  /**
   * The range in whole seconds, half-open. Fractions of a second are truncated at both
   * ends.
   */
  readonly from: Micros | undefined;
  readonly to: Micros | undefined;
}

/**
 * Parses the parameters.
 * @throws ServiceError 400 if a parameter is missing, cannot be parsed, or is not an id
 */
function readRequest(query: Query): ExportRequest {
  const from = query.int64('date_range.start_timestamp');
  const to = query.int64('date_range.end_timestamp');
  const partyId = query.text('party_id') ?? '';
  const assetId = query.text('asset_id');
  if (partyId === '') throw invalid(10014, 'missing party id');
  if (!ID.test(partyId)) throw invalid(10000, 'invalid party id');
  if (assetId !== undefined && !ID.test(assetId))
    throw invalid(10038, 'invalid asset ID');
  return { partyId, assetId, from: secondOf(from), to: secondOf(to) };
}

function invalid(code: number, message: string): ServiceError {
  return new ServiceError('InvalidArgument', { code, message, inner: '' });
}

function secondOf(nanos: bigint | undefined): Micros | undefined {
  if (nanos === undefined) return undefined;
  // Round down, also before 1970.
  return floorSecond(nanos >= 0n ? nanos / 1000n : -((999n - nanos) / 1000n));
}

/** Returns the header with the file name that the service suggests. */
function disposition({ partyId, assetId, from, to }: ExportRequest): string {
  const time = (instant: Micros): string =>
    rfc3339Nano(instant).replaceAll(':', '_');
  const asset = assetId === undefined ? '' : `_${assetId}`;
  const range =
    (from === undefined ? '' : `_${time(from)}`) +
    (to === undefined ? '' : `-${time(to)}`);
  return `attachment;filename=ledger_entries_${partyId}${asset}${range}.csv`;
}

/** Yields the CSV in chunks, each of which ends with a complete row. */
function* csvPieces(
  network: Network,
  { partyId, assetId, from, to }: ExportRequest,
  call: number,
) {
  const { header, select } = RELEASES[network.settings.release];
  const { block: headBlock } = network.head();
  const party = network.parties.indexOf(partyId, headBlock);
  let piece = header;
  if (party !== undefined) {
    const asset =
      assetId === undefined
        ? undefined
        : (network.ids.indexOf(KIND.asset, assetId) ?? NO_ASSET);
    const write = openRowWriter(network, party);
    for (const movement of select(network, {
      party,
      asset,
      from,
      to,
      headBlock,
      call,
    })) {
      piece += write(movement);
      if (piece.length < PIECE_BYTES) continue;
      yield Buffer.from(piece, 'latin1');
      piece = '';
    }
  }
  if (piece !== '') yield Buffer.from(piece, 'latin1');
}
