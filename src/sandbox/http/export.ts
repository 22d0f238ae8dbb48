/**
 * The export of one party's ledger entries: what may be asked, and the stream that answers, in pieces of
 * about a MiB as the service sends them. Nothing is sent before the first piece is full, or all is read.
 */
import { floorSecond, type Micros } from '../../core/time.ts';
import type { Network } from '../network/network.ts';
import { rfc3339Nano } from '../network/times.ts';
import type { Answer, Headers } from './answer.ts';
import { ServiceError } from './errors.ts';
import type { Misbehaviour } from './faults.ts';
import { Query } from './query.ts';

/** The service sends what it has as soon as it has this much. */
const PIECE_BYTES = 1_048_576;
const ID = /^[0-9a-f]{64}$/i;
/** One that is asked for and that nobody has. */
const NO_ASSET = -1;
const JSON_TYPE: Headers = [['Content-Type', 'application/json']];

/** Its range is half-open, on whole seconds: what is below a second is cut off, of both. */
type ExportRequest = ReturnType<typeof exportRequest>;

/**
 * @param call the number of this call
 * @returns undefined where the question kills a node of this release
 */
export function answerExport(
  network: Network,
  queryText: string,
  call: number,
  { errorAfterBytes }: Misbehaviour,
): Answer | undefined {
  const { form, assetRequired, zoneMinutes } = network.settings;
  const isInMessages = form === 'messages';
  let headers = JSON_TYPE;
  try {
    const asked = exportRequest(new Query(queryText), assetRequired);
    if (network.release.dies && asked.from === undefined && asked.to !== undefined) return undefined;
    headers = [['Content-Disposition', disposition(asked, zoneMinutes)]];
    const csv = csvPieces(network, asked, call);
    const whole = errorAfterBytes === undefined ? csv : failingAt(csv, errorAfterBytes);
    const pieces = isInMessages ? asMessages(whole) : whole;
    // Before the first byte an error has a status of its own.
    const first = pieces.next();
    const body = endingInError(first.done === true ? [] : [first.value], pieces, isInMessages ? '\n' : '');
    const type = ['Content-Type', isInMessages ? 'application/json' : 'text/csv'] as const;
    return { status: 200, headers: [...headers, type], body };
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    const { status } = error;
    if (error.origin === 'gateway') return { status, headers: JSON_TYPE, body: error.body(', ') };
    // In pieces, as the service does: without a length.
    const body = [Buffer.from(isInMessages ? error.body() : enveloped(error))];
    return { status, headers: [...headers, ...JSON_TYPE], body };
  }
}

/**
 * What an export is asked for.
 * @throws ServiceError 400: a parameter that cannot be read, or is missing, or is no id
 */
function exportRequest(query: Query, assetRequired: boolean) {
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
  return floorSecond(nanos >= 0n ? nanos / 1000n : -((999n - nanos) / 1000n));
}

/** The file name the service suggests. */
function disposition({ partyId, assetId, from, to }: ExportRequest, zoneMinutes: number): string {
  const time = (instant: Micros): string => rfc3339Nano(instant, zoneMinutes).replaceAll(':', '_');
  const asset = assetId === undefined ? '' : `_${assetId}`;
  const range = (from === undefined ? '' : `_${time(from)}`) + (to === undefined ? '' : `-${time(to)}`);
  return `attachment;filename=ledger_entries_${partyId}${asset}${range}.csv`;
}

/** The CSV in pieces that end on a row. */
function* csvPieces(network: Network, asked: ExportRequest, call: number): Generator<Buffer> {
  const { release, ledger, chain } = network;
  const { block: headBlock } = network.head();
  const { partyId, assetId, ...range } = asked;
  const party = network.parties.indexOf(partyId, headBlock);
  let piece = release.header;
  if (party !== undefined) {
    const asset = assetId === undefined ? undefined : (network.assetOf(assetId) ?? NO_ASSET);
    const write = release.rowWriter(network, party);
    for (const movement of release.select(ledger, chain, { ...range, party, asset, headBlock, call })) {
      piece += write(movement);
      if (piece.length < PIECE_BYTES) continue;
      yield Buffer.from(piece, 'latin1');
      piece = '';
    }
  }
  if (piece !== '') yield Buffer.from(piece, 'latin1');
}

/** The pieces up to a byte, where the query fails. */
function* failingAt(pieces: Iterable<Buffer>, atByte: number): Generator<Buffer> {
  let leftBytes = atByte;
  for (const piece of pieces) {
    const sent = piece.subarray(0, leftBytes);
    leftBytes -= sent.length;
    if (sent.length > 0) yield sent;
    if (leftBytes === 0) break;
  }
  const detail = {
    code: 260002,
    message: 'failed to export ledger entries',
    inner: 'copying to stdout: boom',
  };
  throw new ServiceError('Internal', detail);
}

/** The pieces as messages, one a line; the first one carries the response's metadata. */
function* asMessages(pieces: Iterable<Buffer>): Generator<Buffer> {
  let extensions = ',"extensions":[{"@type":"type.googleapis.com/google.protobuf.Empty"}]';
  for (const piece of pieces) {
    const data = piece.toString('base64');
    yield Buffer.from(`{"result":{"contentType":"text/csv","data":"${data}"${extensions}}}\n`, 'latin1');
    extensions = '';
  }
}

/** An error is glued to what was sent, with no line end before it, and the answer ends as if all were well. */
function* endingInError(
  first: readonly Buffer[],
  rest: Iterable<Buffer>,
  lineEnd: string,
): Generator<Buffer> {
  yield* first;
  try {
    yield* rest;
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    yield Buffer.from(`${enveloped(error)}${lineEnd}`);
  }
}

function enveloped(error: ServiceError): string {
  return `{"error":${error.body()}}`;
}
