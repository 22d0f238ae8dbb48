/**
 * Asks a sandbox as plainly as possible: bytes as they come, headers as they stand on the
 * wire.
 */
import { get } from 'node:http';
import type { Sandbox } from '../support/sandbox.ts';

export interface Reply {
  status: number;
  /** Name and value of each header line, in order. */
  headers: [string, string][];
  body: string;
  /** Whether the answer ended as HTTP says it ends. */
  whole: boolean;
}

export function ask(
  sandbox: Sandbox,
  target: string,
  headers: Record<string, string> = {},
): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const request = get(`${sandbox.url}${target}`, { headers }, (response) => {
      const pieces: Buffer[] = [];
      const lines: [string, string][] = [];
      for (let at = 0; at < response.rawHeaders.length; at += 2) {
        lines.push([
          response.rawHeaders[at] ?? '',
          response.rawHeaders[at + 1] ?? '',
        ]);
      }
      response.on('data', (piece: Buffer) => pieces.push(piece));
      response.on('error', () => {});
      response.on('close', () => {
        const body = Buffer.concat(pieces).toString('latin1');
        resolve({
          status: response.statusCode ?? 0,
          headers: lines,
          body,
          whole: response.complete,
        });
      });
    });
    request.on('error', reject);
  });
}

export interface ListReply {
  ids: string[];
  cursors: string[];
  next: boolean;
  previous: boolean;
  start: string;
  end: string;
}

interface Edges {
  edges: {
    node: { id?: string; hash?: string; atBlock?: string; blockHash?: string };
    cursor: string;
  }[];
  pageInfo: {
    hasNextPage: boolean;
    hasPreviousPage: boolean;
    startCursor: string;
    endCursor: string;
  };
}

/** One page of a list; checkpoints are named by height and hash. */
export async function page(
  sandbox: Sandbox,
  list: 'parties' | 'checkpoints',
  query: Record<string, string> = {},
): Promise<ListReply> {
  const text = new URLSearchParams(query).toString();
  const reply = await ask(sandbox, `/api/v2/${list}?${text}`);
  if (reply.status !== 200) throw new Error(`${reply.status}: ${reply.body}`);
  const json = JSON.parse(reply.body) as Record<string, Edges>;
  const { edges, pageInfo } = json[list]!;
  return {
    ids: edges.map(
      ({ node }) => node.id ?? `${node.atBlock} ${node.hash} ${node.blockHash}`,
    ),
    cursors: edges.map((edge) => edge.cursor),
    next: pageInfo.hasNextPage,
    previous: pageInfo.hasPreviousPage,
    start: pageInfo.startCursor,
    end: pageInfo.endCursor,
  };
}

/** Follows `endCursor` as a simple client would. */
export async function readList(
  sandbox: Sandbox,
  list: 'parties' | 'checkpoints',
  rowsMax: number,
  newestFirst: boolean,
): Promise<string[]> {
  const ids: string[] = [];
  const query: Record<string, string> = {
    'pagination.first': `${rowsMax}`,
    'pagination.newestFirst': `${newestFirst}`,
  };
  for (let pages = 0; pages < 10_000; pages += 1) {
    const reply = await page(sandbox, list, query);
    ids.push(...reply.ids);
    if (!reply.next || reply.end === '') return ids;
    query['pagination.after'] = reply.end;
  }
  throw new Error('the list does not end');
}

export function exportOf(
  partyId: string,
  more: Record<string, string> = {},
): string {
  return `/api/v2/ledgerentry/export?${new URLSearchParams({ partyId, ...more }).toString()}`;
}

/** The rows of a CSV body without its header. */
export function rowsOf(csv: string): string[] {
  return csv.split('\n').slice(1, -1);
}
