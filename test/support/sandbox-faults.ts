/**
 * Misbehaviour on demand: a fault looks at each request, and returns what goes wrong with
 * it, or nothing.
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { constants, createGzip } from 'node:zlib';
import { ServiceError, type Answer } from '../../src/sandbox/http/errors.ts';

export type Route = 'parties' | 'checkpoints' | 'export' | 'other';

/** What a fault can base its decision on. */
export interface SandboxRequest {
  route: Route;
  method: string;
  path: string;
  /** The query string, as sent and parsed. */
  queryText: string;
  query: URLSearchParams;
  /** The number of this request among those of its route, from 1. */
  nth: number;
  /** The value of the Authorization header. */
  authorization: string | undefined;
}

/**
 * What goes wrong with one request. Numbers of bytes refer to the body before it is
 * compressed.
 */
export interface Misbehaviour {
  /**
   * A delay before anything else happens, in addition to the sandbox's general latency.
   */
  delayMs?: number;
  /**
   * Nothing else happens until this promise settles. A test can use it to hold a request
   * until it has observed what it is waiting for.
   */
  until?: Promise<unknown>;
  /** The whole answer, which replaces the service's. */
  answer?: {
    status: number;
    body: string;
    headers?: Readonly<Record<string, string>>;
  };
  /** For lists only: changes the JSON. */
  rewrite?: (json: string) => string;
  /**
   * For exports only: the query fails after this many bytes. With 0, the answer has an
   * error status. Otherwise its status is 200, and the error follows the last of these
   * bytes.
   */
  errorAfterBytes?: number;
  /** The connection breaks after this many bytes. */
  cutAfterBytes?: number;
  /** Nothing more arrives after this many bytes, and the connection stays open. */
  stallAfterBytes?: number;
}

export type Fault = (request: SandboxRequest) => Misbehaviour | undefined;

/** The ways in which a network serves every export differently from the real service. */
export interface ExportHabits {
  /**
   * The form of an export: raw CSV, as the service sends it, or the messages that its
   * interface document describes.
   */
  readonly form?: 'csv' | 'messages';
  /**
   * Release 0.71 refuses exports without an asset, though its documents call it optional.
   */
  readonly assetRequired?: boolean;
}

const ROUTES = new Map<string, Route>([
  ['/api/v2/parties', 'parties'],
  ['/api/v2/checkpoints', 'checkpoints'],
  ['/api/v2/ledgerentry/export', 'export'],
]);
const JSON_TYPE = { 'Content-Type': 'application/json' };
const FAILURE = new ServiceError('Internal', {
  code: 260002,
  message: 'failed to export ledger entries',
  inner: 'copying to stdout: boom',
});
const ASSET_MISSING = new ServiceError('InvalidArgument', {
  code: 10017,
  message: 'missing asset ID',
  inner: '',
});

/** @param nths the number of requests of each route so far; this one is added */
export function readRequest(
  request: IncomingMessage,
  nths: Map<Route, number>,
): SandboxRequest {
  const [path = '/', ...rest] = (request.url ?? '/').split('?');
  const queryText = rest.join('?');
  const route = ROUTES.get(path) ?? 'other';
  const nth = (nths.get(route) ?? 0) + 1;
  nths.set(route, nth);
  const { method = 'GET', headers } = request;
  const query = new URLSearchParams(queryText);
  return {
    route,
    method,
    path,
    queryText,
    query,
    nth,
    authorization: headers.authorization,
  };
}

/**
 * Waits for as long as the fault specifies.
 * @throws once the client has disconnected
 */
export async function holdBack(
  { delayMs = 0, until }: Misbehaviour,
  signal: AbortSignal,
): Promise<void> {
  if (delayMs > 0) await sleep(delayMs, undefined, { signal });
  if (until !== undefined) await Promise.race([until, once(signal, 'abort')]);
  signal.throwIfAborted();
}

/** Returns the list's answer with its JSON rewritten. */
export function rewritten(
  answer: Answer,
  { rewrite = (json) => json }: Misbehaviour,
): Answer {
  return answer.status === 200 && typeof answer.body === 'string'
    ? { ...answer, body: rewrite(answer.body) }
    : answer;
}

/** Returns the export with this network's habits and this request's fault. */
export function spoiltExport(
  answer: Answer | undefined,
  { query }: SandboxRequest,
  { form = 'csv', assetRequired = false }: ExportHabits,
  { errorAfterBytes }: Misbehaviour,
): Answer | undefined {
  const isInMessages = form === 'messages';
  const refuse = (
    error: ServiceError,
    headers: Answer['headers'] = {},
  ): Answer => ({
    status: error.status,
    headers: { ...headers, ...JSON_TYPE },
    body: [Buffer.from(isInMessages ? error.body : enveloped(error))],
  });
  const isServed = answer === undefined || answer.status === 200;
  const hasAsset = query.has('assetId') || query.has('asset_id');
  if (assetRequired && isServed && !hasAsset) return refuse(ASSET_MISSING);
  if (
    answer === undefined ||
    answer.status !== 200 ||
    typeof answer.body === 'string'
  )
    return answer;
  const { 'Content-Type': _type, ...named } = answer.headers;
  // An error before the first byte has its own status.
  if (errorAfterBytes === 0) return refuse(FAILURE, named);
  const whole =
    errorAfterBytes === undefined
      ? answer.body
      : piecesUpTo(answer.body, errorAfterBytes);
  const sent = isInMessages ? asMessages(whole) : whole;
  const body =
    errorAfterBytes === undefined
      ? sent
      : endingInError(sent, isInMessages ? '\n' : '');
  return isInMessages
    ? { ...answer, headers: { ...named, ...JSON_TYPE }, body }
    : { ...answer, body };
}

function* piecesUpTo(
  pieces: Iterable<Buffer>,
  atByte: number,
): Generator<Buffer> {
  let leftBytes = atByte;
  for (const piece of pieces) {
    const sent = piece.subarray(0, leftBytes);
    leftBytes -= sent.length;
    yield sent;
    if (leftBytes === 0) return;
  }
}

/**
 * Yields the chunks as messages, one per line; the first one contains the response's
 * metadata.
 */
function* asMessages(pieces: Iterable<Buffer>): Generator<Buffer> {
  let extensions =
    ',"extensions":[{"@type":"type.googleapis.com/google.protobuf.Empty"}]';
  for (const piece of pieces) {
    const data = piece.toString('base64');
    yield Buffer.from(
      `{"result":{"contentType":"text/csv","data":"${data}"${extensions}}}\n`,
      'latin1',
    );
    extensions = '';
  }
}

/**
 * Yields the chunks and then an error, with no line end between them. The answer then
 * ends as if it had succeeded.
 */
function* endingInError(
  pieces: Iterable<Buffer>,
  lineEnd: string,
): Generator<Buffer> {
  yield* pieces;
  yield Buffer.from(`${enveloped(FAILURE)}${lineEnd}`);
}

function enveloped(error: ServiceError): string {
  return `{"error":${error.body}}`;
}

/**
 * Sends an answer up to a given byte. Then the connection breaks, or nothing more is sent
 * until the client disconnects.
 */
export async function sendBroken(
  request: IncomingMessage,
  response: ServerResponse,
  { status, headers, body }: Answer,
  { cutAfterBytes = Infinity, stallAfterBytes = Infinity }: Misbehaviour,
  signal: AbortSignal,
): Promise<void> {
  response.statusCode = status;
  response.setHeaders(new Map(Object.entries(headers)));
  const isPacked = /gzip/i.test(request.headers['accept-encoding'] ?? '');
  const gzip = isPacked
    ? createGzip({ level: constants.Z_BEST_SPEED })
    : undefined;
  if (gzip !== undefined) {
    response.setHeader('Content-Encoding', 'gzip');
    gzip.pipe(response);
    signal.addEventListener('abort', () => gzip.destroy(), { once: true });
  } else if (typeof body === 'string')
    response.setHeader('Content-Length', Buffer.byteLength(body));
  const out = gzip ?? response;

  let leftBytes = Math.min(cutAfterBytes, stallAfterBytes);
  for (const piece of typeof body === 'string' ? [Buffer.from(body)] : body) {
    const sent = piece.subarray(0, leftBytes);
    leftBytes -= sent.length;
    if (!out.write(sent)) await once(out, 'drain', { signal });
    if (leftBytes > 0) continue;
    // Make sure that everything written reaches the client first.
    if (gzip !== undefined)
      await new Promise<void>((resolve) => gzip.flush(resolve));
    await new Promise<void>((resolve) =>
      response.write(Buffer.alloc(0), () => resolve()),
    );
    if (cutAfterBytes !== Infinity) response.destroy();
    else if (!signal.aborted) await once(signal, 'abort');
    return;
  }
  const finished = once(response, 'finish', { signal });
  out.end();
  await finished;
}
