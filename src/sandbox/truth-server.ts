/**
 * The truth as JSON, for those who compare from another process: `/parties` and `/checkpoints` one row a
 * line, `/parties/<id>` with `from`, `to` (RFC 3339) and `asset`, `/parties/<id>/balances`, and `/head`.
 */
import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { canonicalId } from '../core/ids.ts';
import { formatInstant, parseInstant } from '../core/time.ts';
import type { Truth, TruthWindow } from './truth.ts';

/** Starts serving; who starts it closes it. */
export async function serveTruth(truth: Truth, port: number, host: string): Promise<Server> {
  const server = createServer((request, response) => {
    const url = new URL(request.url ?? '/', 'http://truth');
    const [, what, id, more] = url.pathname.split('/');
    const partyId = id === undefined ? undefined : canonicalId(id);
    const window = windowOf(url.searchParams);
    if (what === 'head') sendJson(response, 200, truth.head());
    else if (what === 'parties' && id === undefined) sendLines(response, truth.parties());
    else if (what === 'checkpoints' && id === undefined) sendLines(response, truth.checkpoints());
    else if (what !== 'parties' || partyId === undefined) sendJson(response, 404, { error: 'no such page' });
    else if (more === 'balances') sendJson(response, 200, truth.balances(partyId));
    else if (window === undefined) sendJson(response, 400, { error: 'from and to: RFC 3339 accepted' });
    else sendJson(response, 200, truth.party(partyId, window));
  });
  server.listen(port, host);
  await once(server, 'listening');
  return server;
}

function windowOf(query: URLSearchParams): TruthWindow | undefined {
  const window: TruthWindow = {};
  for (const bound of ['from', 'to'] as const) {
    const text = query.get(bound);
    if (text === null) continue;
    const instant = parseInstant(text);
    if (instant === undefined) return undefined;
    window[bound] = instant;
  }
  const asset = query.get('asset');
  return asset === null ? window : { ...window, assetId: asset };
}

function sendJson(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { 'Content-Type': 'application/json' });
  response.end(`${toJson(value)}\n`);
}

function sendLines(response: ServerResponse, rows: Iterable<object>): void {
  response.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
  const lines = function* (): Generator<string> {
    for (const row of rows) yield `${toJson(row)}\n`;
  };
  // A reader that goes away ends the lines; nobody is left to tell.
  pipeline(Readable.from(lines()), response).catch(() => response.destroy());
}

/** Amounts, heights and times are text: they do not fit a JSON number. Times are RFC 3339. */
function toJson(value: unknown): string {
  return JSON.stringify(value, (name, member: unknown) => {
    if (typeof member !== 'bigint') return member;
    return name === 'time' || name === 'firstSeen' ? formatInstant(member) : member.toString();
  });
}
