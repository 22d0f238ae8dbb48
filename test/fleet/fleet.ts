/**
 * Several nodes of one network behind one address, over HTTP. Each request is answered by
 * a node that is drawn for it. What each answer showed is recorded for the oracle.
 */
import {
  createServer,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Micros } from '../../src/time/time.ts';
import { HEADER_13 } from '../ledger/csv.ts';
import type { Random } from '../lists/plain-source/random.ts';
import type { Chain } from './chain.ts';
import {
  type FleetNode,
  headOf,
  shownCheckpoints,
  shownEntries,
  shownParties,
  type ShownRow,
} from './node.ts';

export type ListName = 'parties' | 'checkpoints';

/** What the answers to one mirror have shown since a run began, or since ever. */
export interface Served {
  readonly parties: Set<string>;
  readonly checkpoints: Set<string>;
  /** Numbers of entries by party. */
  readonly entries: Map<string, Set<string>>;
  /** The highest head of an answer for each list; undefined before the first. */
  readonly heads: Map<ListName, bigint>;
}

export function nothingServed(): Served {
  return {
    parties: new Set(),
    checkpoints: new Set(),
    entries: new Map(),
    heads: new Map(),
  };
}

/** Copies what was served, so that later answers do not change it. */
export function copyServed(served: Served): Served {
  return {
    parties: new Set(served.parties),
    checkpoints: new Set(served.checkpoints),
    entries: new Map(
      [...served.entries].map(([id, numbers]) => [id, new Set(numbers)]),
    ),
    heads: new Map(served.heads),
  };
}

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

const CLOCK_ROWS = 2;
const JSON_TYPE = { 'content-type': 'application/json' };

export class Fleet implements AsyncDisposable {
  readonly #random: Random;
  readonly #server = createServer((request, response) =>
    this.#answer(request, response),
  );
  chain: Chain;
  /** A request is answered by one of these, each as likely as the others. */
  nodes: readonly FleetNode[] = [{ kind: 'tip', lag: 0n }];
  /** What was served since the network began. */
  ever = nothingServed();
  /** What was served since the test emptied it. */
  lately = nothingServed();
  /** Called before each answer, with the number of requests since the start. */
  onRequest: (requests: number) => void = () => undefined;
  requests = 0;
  /** One line for each answer, which shows the reason of a failure. */
  readonly journal: string[] = [];

  constructor(random: Random, chain: Chain) {
    this.#random = random;
    this.chain = chain;
  }

  async listen(): Promise<string> {
    await new Promise<void>((resolve) =>
      this.#server.listen(0, '127.0.0.1', resolve),
    );
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    request.resume();
    this.requests += 1;
    this.onRequest(this.requests);
    const url = new URL(request.url ?? '/', 'http://fleet');
    const node = this.#random.pick(this.nodes);
    const { status, headers, body } = this.#answerOf(node, url);
    const { chain } = this;
    const head = headOf(node, chain);
    this.journal.push(
      `${node.kind} ${head} ${status} ${url.pathname}${url.search.slice(0, 200)} ${body.length}`,
    );
    response.writeHead(status, {
      ...headers,
      'x-block-height': String(head),
      'x-block-timestamp': String(chain.timeOf(head) * 1000n),
      'content-length': String(Buffer.byteLength(body)),
    });
    response.end(body);
  }

  #answerOf(node: FleetNode, url: URL): Answer {
    if (url.pathname === '/api/v2/parties')
      return this.#list('parties', node, url.searchParams);
    if (url.pathname === '/api/v2/checkpoints')
      return this.#list('checkpoints', node, url.searchParams);
    if (url.pathname === '/api/v2/ledgerentry/export')
      return this.#export(node, url.searchParams);
    return refuse(404, 5, 'Not Found');
  }

  #list(list: ListName, node: FleetNode, query: URLSearchParams): Answer {
    const rows =
      list === 'parties'
        ? shownParties(node, this.chain)
        : shownCheckpoints(node, this.chain);
    const partyId = query.get('partyId');
    const page =
      partyId === null
        ? cutPage(rows, query)
        : describePage(
            rows.filter(({ node: { id } }) => id === partyId),
            false,
            false,
          );
    const body = JSON.stringify({ [list]: page.document });
    const answer = { status: 200, headers: JSON_TYPE, body };
    // A run asks for so few rows to learn the time of the source. It reads no list by it.
    if (Number(query.get('pagination.first')) <= CLOCK_ROWS) return answer;
    const head = headOf(node, this.chain);
    for (const { heads, [list]: keys } of [this.ever, this.lately]) {
      for (const { key } of page.rows) keys.add(key);
      const before = heads.get(list);
      if (before === undefined || before < head) heads.set(list, head);
    }
    return answer;
  }

  #export(node: FleetNode, query: URLSearchParams): Answer {
    const spelling = query.get('partyId') ?? '';
    const party = this.chain.parties.find((one) => one.spelling === spelling);
    const isRemoved =
      party?.removedAt !== undefined &&
      party.removedAt <= headOf(node, this.chain);
    if (isRemoved) return refuse(404, 5, 'no such party');
    const from = micros(query.get('dateRange.startTimestamp')) ?? 0n;
    const to = micros(query.get('dateRange.endTimestamp'));
    const entries =
      party === undefined
        ? []
        : shownEntries(node, this.chain, party.id, { from, to });
    // An answer of a node that is behind is not read: the next node is asked.
    const heads = [...this.ever.heads.values()];
    const isRead = heads.every(
      (reached) => headOf(node, this.chain) >= reached,
    );
    if (party !== undefined && isRead)
      for (const { entries: served } of [this.ever, this.lately]) {
        const rows = served.get(party.id) ?? new Set();
        served.set(party.id, rows);
        for (const { number } of entries) rows.add(number);
      }
    const body = [HEADER_13, ...entries.map(({ row }) => row), ''].join('\n');
    return { status: 200, headers: { 'content-type': 'text/csv' }, body };
  }
}

interface Page {
  readonly rows: readonly ShownRow[];
  readonly document: object;
}

/** @param rows oldest first */
function cutPage(rows: readonly ShownRow[], query: URLSearchParams): Page {
  const isNewestFirst = query.get('pagination.newestFirst') !== 'false';
  const ordered = isNewestFirst ? rows.toReversed() : rows;
  const after = query.get('pagination.after');
  const isBeyond = ({ cursor }: ShownRow): boolean =>
    after === null || (isNewestFirst ? cursor < after : cursor > after);
  const start = ordered.findIndex(isBeyond);
  const rest = start === -1 ? [] : ordered.slice(start);
  const first = Number(query.get('pagination.first') ?? 1000);
  return describePage(
    rest.slice(0, first),
    rest.length > first,
    after !== null,
  );
}

function describePage(
  rows: readonly ShownRow[],
  hasNextPage: boolean,
  hasPreviousPage: boolean,
): Page {
  const edges = rows.map(({ node, cursor }) => ({ node, cursor }));
  const pageInfo = {
    hasNextPage,
    hasPreviousPage,
    startCursor: rows.at(0)?.cursor ?? '',
    endCursor: rows.at(-1)?.cursor ?? '',
  };
  return { rows, document: { edges, pageInfo } };
}

function refuse(status: number, code: number, message: string): Answer {
  const body = JSON.stringify({ code, message, details: [] });
  return { status, headers: JSON_TYPE, body };
}

function micros(nanos: string | null): Micros | undefined {
  return nanos === null ? undefined : BigInt(nanos) / 1000n;
}
