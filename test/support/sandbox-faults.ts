/**
 * Misbehaviour on demand: a fault looks at each request and says what goes wrong with it,
 * or nothing.
 */
import { once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { constants, createGzip } from 'node:zlib';
import { ServiceError, type Answer } from '../../src/sandbox/http/errors.ts';

export type Route = 'parties' | 'checkpoints' | 'export' | 'other';

/** What a fault may judge by. */
export interface SandboxRequest {
  route: Route;
  method: string;
  path: string;
  /** The query string as it came, and read. */
  queryText: string;
  query: URLSearchParams;
  /** The how-manieth request of its route this is, from 1. */
  nth: number;
  /** The header of that name. */
  authorization: string | undefined;
}

/** What goes wrong with one request. Bytes count the body before it is compressed. */
export interface Misbehaviour {
  /** Time before anything else happens, besides the latency of all. */
  delayMs?: number;
  /**
   * Nothing else happens before this is settled: how a test holds a request until it has
   * seen what it waits for.
   */
  until?: Promise<unknown>;
  /** The whole answer, instead of the service's. */
  answer?: {
    status: number;
    body: string;
    headers?: Readonly<Record<string, string>>;
  };
  /** Lists only: what becomes of the JSON. */
  rewrite?: (json: string) => string;
  /**
   * Exports only: the query fails there. 0: an error status; later: the error follows the
   * last byte of a 200.
   */
  errorAfterBytes?: number;
  /** The connection breaks there. */
  cutAfterBytes?: number;
  /** Nothing comes any more from there on, and the connection stays. */
  stallAfterBytes?: number;
}

export type Fault = (request: SandboxRequest) => Misbehaviour | undefined;

/**
 * How every export of a network is served, where it is not as the service really serves
 * it.
 */
export interface ExportHabits {
  /**
   * What an export sends: raw CSV as the service does, or the messages its interface
   * document describes.
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

/** @param nths how many requests each route had so far; this one is counted */
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

/** Waits as long as the fault says. @throws once the client is gone */
export async function holdBack(
  { delayMs = 0, until }: Misbehaviour,
  signal: AbortSignal,
): Promise<void> {
  if (delayMs > 0) await sleep(delayMs, undefined, { signal });
  if (until !== undefined) await Promise.race([until, once(signal, 'abort')]);
  signal.throwIfAborted();
}

/** The list's answer, with its JSON rewritten. */
export function rewritten(
  answer: Answer,
  { rewrite = (json) => json }: Misbehaviour,
): Answer {
  return answer.status === 200 && typeof answer.body === 'string'
    ? { ...answer, body: rewrite(answer.body) }
    : answer;
}

/** The export as it is served with this network's habits and this request's fault. */
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
  // Before the first byte an error has a status of its own.
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

/** The pieces as messages, one a line; the first one carries the response's metadata. */
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
 * An error is glued to what was sent, with no line end before it, and the answer ends as
 * if all were well.
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
 * Sends an answer up to a byte; then the connection breaks, or falls silent until the
 * client goes away.
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
    // What was written reaches the client first.
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
