/**
 * The export of one party's ledger entries: what may be asked, and the stream that answers, in pieces of
 * about a MiB as the service sends them. Nothing is sent before the first piece is full, or all is read.
 */
import { floorSecond, type Micros } from '../../core/time.ts';
import { ServiceError } from './errors.ts';
import type { Network } from '../network/network.ts';
import type { Query } from './query.ts';
import type { Movement } from '../network/cycle.ts';
import { rfc3339Nano } from '../network/times.ts';

/** The service sends what it has as soon as it has this much. */
const PIECE_BYTES = 1_048_576;
/** No row is longer: four ids, three amounts, a type and a time. */
const ROW_BYTES_MAX = 2_048;
const ID = /^[0-9a-f]{64}$/i;

export interface ExportRequest {
  partyId: string;
  assetId: string | undefined;
  /** Half-open, on whole seconds: what is below a second is cut off, of both. */
  from: Micros | undefined;
  to: Micros | undefined;
}

/**
 * What an export is asked for.
 * @throws ServiceError 400: a parameter that cannot be read, or is missing, or is no id
 */
export function exportRequest(query: Query, assetRequired: boolean): ExportRequest {
  const from = query.int64('date_range.start_timestamp');
  const to = query.int64('date_range.end_timestamp');
  const partyId = query.text('party_id') ?? '';
  const assetId = query.text('asset_id');
  if (partyId === '') throw invalid(10014, 'missing party id');
  if (!ID.test(partyId)) throw invalid(10000, 'invalid party id');
  if (assetRequired && assetId === undefined) throw invalid(10017, 'missing asset ID');
  if (assetId !== undefined && !ID.test(assetId)) throw invalid(10038, 'invalid asset ID');
  return { partyId, assetId, from: secondOf(from), to: secondOf(to) };
}

function invalid(code: number, message: string): ServiceError {
  return new ServiceError('InvalidArgument', { code, message, inner: '' });
}

function secondOf(nanos: bigint | undefined): Micros | undefined {
  if (nanos === undefined) return undefined;
  // Rounded down, also before 1970.
  const micros = nanos >= 0n ? nanos / 1000n : -((999n - nanos) / 1000n);
  return floorSecond(micros);
}

/** The file name the service suggests, as its Content-Disposition header. */
export function disposition(request: ExportRequest, zoneMinutes: number): string {
  const { partyId, assetId, from, to } = request;
  const time = (instant: Micros): string => rfc3339Nano(instant, zoneMinutes).replaceAll(':', '_');
  const asset = assetId === undefined ? '' : `_${assetId}`;
  const range = (from === undefined ? '' : `_${time(from)}`) + (to === undefined ? '' : `-${time(to)}`);
  return `attachment;filename=ledger_entries_${partyId}${asset}${range}.csv`;
}

/**
 * The CSV in pieces that end on a row.
 * @param call the number of this call
 */
export function* csvPieces(network: Network, request: ExportRequest, call: number): Generator<Buffer> {
  let piece = Buffer.allocUnsafeSlow(PIECE_BYTES + ROW_BYTES_MAX);
  let bytes = piece.write(network.release.header, 0, 'latin1');
  for (const { movement, write } of movementsOf(network, request, call)) {
    bytes += piece.write(write(movement), bytes, 'latin1');
    if (bytes < PIECE_BYTES) continue;
    yield piece.subarray(0, bytes);
    piece = Buffer.allocUnsafeSlow(PIECE_BYTES + ROW_BYTES_MAX);
    bytes = 0;
  }
  if (bytes > 0) yield piece.subarray(0, bytes);
}

function* movementsOf(
  network: Network,
  request: ExportRequest,
  call: number,
): Generator<{ movement: Movement; write: (movement: Movement) => string }> {
  const { block: headBlock } = network.head();
  const party = network.parties.indexOf(request.partyId, headBlock);
  if (party === undefined) return;
  const { assetId, from, to } = request;
  const asset = assetId === undefined ? undefined : (network.assetOf(assetId) ?? ('unknown' as const));
  const write = network.release.rowWriter(network.names(), party);
  const asked = { party, asset, from, to, headBlock, call };
  for (const movement of network.release.select(network.ledger, network.chain, asked))
    yield { movement, write };
}

/** The pieces up to a byte, where the query fails. */
export function* failingAt(
  pieces: Iterable<Buffer>,
  atByte: number,
  failure: ServiceError,
): Generator<Buffer> {
  let leftBytes = atByte;
  for (const piece of pieces) {
    if (leftBytes <= piece.length) {
      if (leftBytes > 0) yield piece.subarray(0, leftBytes);
      throw failure;
    }
    leftBytes -= piece.length;
    yield piece;
  }
  throw failure;
}

/** The pieces as messages, one a line; the first one carries the response's metadata. */
export function* asMessages(pieces: Iterable<Buffer>): Generator<Buffer> {
  let extensions = ',"extensions":[{"@type":"type.googleapis.com/google.protobuf.Empty"}]';
  for (const piece of pieces) {
    const data = piece.toString('base64');
    yield Buffer.from(`{"result":{"contentType":"text/csv","data":"${data}"${extensions}}}\n`, 'latin1');
    extensions = '';
  }
}

/** An error as the export writes it, in the stream or instead of it. */
export function enveloped(error: ServiceError): string {
  return `{"error":${error.body}}`;
}
