/**
 * The export of one party's ledger entries: what may be asked, and the stream that answers, in pieces of
 * about a MiB as the service sends them. Nothing is sent before the first piece is full, or all is read.
 */
import { floorSecond, type Micros } from '../../core/time.ts';
import { ServiceError } from './errors.ts';
import type { Network } from '../network/network.ts';
import type { Query } from './query.ts';
import { rfc3339Nano } from '../network/times.ts';

/** The service sends what it has as soon as it has this much. */
const PIECE_BYTES = 1_048_576;
const ID = /^[0-9a-f]{64}$/i;
/** One that is asked for and that nobody has. */
const NO_ASSET = -1;

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
  let piece = network.release.header;
  for (const row of selectRows(network, request, call)) {
    piece += row;
    if (piece.length < PIECE_BYTES) continue;
    yield Buffer.from(piece, 'latin1');
    piece = '';
  }
  if (piece !== '') yield Buffer.from(piece, 'latin1');
}

function* selectRows(network: Network, request: ExportRequest, call: number): Generator<string> {
  const { release, ledger, chain } = network;
  const { block: headBlock } = network.head();
  const party = network.parties.indexOf(request.partyId, headBlock);
  if (party === undefined) return;
  const { assetId, from, to } = request;
  const asset = assetId === undefined ? undefined : (network.assetOf(assetId) ?? NO_ASSET);
  const write = release.rowWriter(network, party);
  const asked = { party, asset, from, to, headBlock, call };
  for (const movement of release.select(ledger, chain, asked)) yield write(movement);
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
