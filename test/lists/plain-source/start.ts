/**
 * A plain source of lists on a port of its own. Written from the interface document
 * alone.
 */
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { AddressInfo } from 'node:net';
import { gzipSync } from 'node:zlib';
import type { Dialect } from './dialect.ts';
import { writePage } from './envelope.ts';
import {
  activate,
  meet,
  type Answer,
  type Call,
  type Fault,
  type When,
} from './fault.ts';
import { readRequest, Refusal, type ListRequest, type Page } from './page.ts';
import {
  LISTS,
  RowMaker,
  type CheckpointRow,
  type Item,
  type ListName,
  type Rows,
} from './rows.ts';
import { World } from './world.ts';

export interface Asked {
  readonly list: ListName;
  readonly query: Readonly<Record<string, string>>;
  readonly status: number;
}

/**
 * What a list truly is: keys oldest first with their ages, and every key that it ever
 * had.
 */
export interface ListTruth {
  readonly rows: readonly {
    readonly key: string;
    readonly age: bigint | null;
  }[];
  readonly ever: ReadonlySet<string>;
}

export interface PlainSource {
  readonly url: string;
  /**
   * What a healthy source has, oldest first. Rows that are alike in every field count
   * once.
   */
  readonly truth: {
    readonly parties: readonly string[];
    readonly checkpoints: readonly CheckpointRow[];
  };
  /** A copy of what every request sees at present; for the oracle. */
  snapshot(list: ListName): ListTruth;
  readonly requests: readonly Asked[];
  append(rows: Partial<Rows>): void;
  misbehave(fault: Fault, when?: When): void;
  heal(): void;
  close(): Promise<void>;
}

export interface PlainSourceOptions extends Rows {
  readonly dialect: Dialect;
}

const JSON_TYPE = 'application/json';
/** Cursors of 9,000 characters travel in the address. */
const MAX_HEADER_BYTES = 256 * 1024;

export async function startPlainSource(
  options: PlainSourceOptions,
): Promise<PlainSource> {
  const world = new World(options.dialect, options);
  const requests: Asked[] = [];
  const grow = growAtFirst(world, options);
  const server = createServer(
    { maxHeaderSize: MAX_HEADER_BYTES },
    (request, response) => {
      const url = new URL(request.url ?? '/', 'http://plain');
      const list = LISTS.find((name) => url.pathname === `/api/v2/${name}`);
      if (list === undefined || request.method !== 'GET') {
        send(request, response, refuse(404, 'there is nothing here'), false);
        return;
      }
      grow(requests.length);
      const answer = answerList(world, list, url.searchParams);
      requests.push({
        list,
        query: Object.fromEntries(url.searchParams),
        status: answer.status,
      });
      send(request, response, answer, options.dialect.isGzip);
    },
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return describeSource(`http://127.0.0.1:${port}`, world, requests, server);
}

function describeSource(
  url: string,
  world: World,
  requests: Asked[],
  server: Server,
): PlainSource {
  return {
    url,
    requests,
    get truth() {
      return {
        parties: world.all('parties').map((item) => item.key),
        checkpoints: dropTwins(world.all('checkpoints')).map(
          (item) => item.fields as never as CheckpointRow,
        ),
      };
    },
    snapshot: (list) => ({
      rows: dropTwins(world.served(list)).map(({ key, age }) => ({ key, age })),
      ever: new Set(world.ever[list]),
    }),
    append: (rows) => world.append(rows),
    misbehave: (fault, when) => {
      world.fault = activate(fault, when);
      for (const list of LISTS) world.served(list);
    },
    heal: () => {
      world.fault = undefined;
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function dropTwins(items: readonly Item[]): readonly Item[] {
  return [...new Map(items.map((item) => [item.key, item])).values()];
}

/** Some rows more before each of the first requests. */
function growAtFirst(
  world: World,
  { dialect, parties, checkpoints }: PlainSourceOptions,
): (request: number) => void {
  const { growth } = dialect;
  if (growth === undefined) return () => undefined;
  const newest = BigInt(checkpoints.at(-1)?.atBlock ?? '0');
  const maker = new RowMaker({
    seed: dialect.seed + 99,
    firstHeight: newest + 1n,
  });
  const oldest = parties.reduce(
    (age, row) => (row.age !== null && row.age > age ? row.age : age),
    0n,
  );
  return (request) => {
    if (request >= growth.requests) return;
    const rows = maker.make(growth.rows, growth.rows);
    world.append({
      ...rows,
      parties: rows.parties.map((row) => ({
        ...row,
        age: (row.age ?? 0n) + oldest,
      })),
    });
  };
}

function answerList(
  world: World,
  list: ListName,
  query: URLSearchParams,
): Answer {
  const { notServed } = world.dialect;
  if (notServed?.list === list)
    return refuse(notServed.status, 'this list is not served');
  try {
    return answerRequest(world, readRequest(list, query));
  } catch (error) {
    if (error instanceof Refusal) return refuse(error.status, error.message);
    throw error;
  }
}

function answerRequest(world: World, request: ListRequest): Answer {
  const { fault } = world;
  const n =
    fault === undefined
      ? undefined
      : meet(fault, request, promisesMore(world, request));
  if (fault === undefined || n === undefined)
    return writeAnswer(world, request, world.honestPage(request));
  const call: Call = { n, request, world };
  const { change, instead, page: bend, answer: spoil } = fault.behaviour;
  change?.(call);
  const page = instead?.(call) ?? world.honestPage(request, true);
  const answer = writeAnswer(world, request, bend?.(page, call) ?? page);
  return spoil?.(answer, call) ?? answer;
}

function promisesMore(world: World, request: ListRequest): boolean {
  try {
    return world.honestPage(request).hasNextPage;
  } catch (error) {
    if (error instanceof Refusal) return false;
    throw error;
  }
}

function writeAnswer(world: World, request: ListRequest, page: Page): Answer {
  const body = writePage(request.list, page, world.dialect, world.random);
  return { status: 200, headers: { 'content-type': JSON_TYPE }, body };
}

function refuse(status: number, message: string): Answer {
  const body = JSON.stringify({
    code: status === 404 ? 5 : 3,
    message,
    details: [],
  });
  return { status, headers: { 'content-type': JSON_TYPE }, body };
}

function send(
  request: IncomingMessage,
  response: ServerResponse,
  answer: Answer,
  isGzip: boolean,
): void {
  request.resume();
  const bytes = isGzip ? gzipSync(answer.body) : Buffer.from(answer.body);
  const encoding = isGzip ? { 'content-encoding': 'gzip' } : {};
  const length =
    answer.status === 304 ? {} : { 'content-length': String(bytes.length) };
  response.writeHead(answer.status, {
    ...answer.headers,
    ...encoding,
    ...length,
  });
  if (answer.cutAfter === undefined) {
    response.end(bytes);
    return;
  }
  response.write(bytes.subarray(0, answer.cutAfter), () => response.destroy());
}
