/**
 * A plain server of the export, and of lists that name its parties. Written from the
 * interface document alone.
 */
import { createHash } from 'node:crypto';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { HOUR, toLedgerRow, type Entry, type LedgerRow } from './ledger.ts';
import {
  honestAnswer,
  type ExportRequest,
  type HostileCase,
  type Phase,
} from './cases/case.ts';
import { answerCheckpoints, answerParties } from './lists.ts';
import { refusal, type Reply } from './reply.ts';
import {
  DEFAULT_NAMES,
  readHead,
  readTime,
  type Head,
  type Names,
} from './request.ts';
import { writeReply } from './wire.ts';

export interface Asked extends ExportRequest {
  readonly name: string;
}

export interface HostileSource {
  readonly url: string;
  /** The world's now in microseconds: a whole hour. */
  readonly now: bigint;
  partyOf(name: string): string;
  /** The true rows at present, as the ledger should have them. */
  truth(name: string): readonly LedgerRow[];
  /** Those of them that have to be published whatever the verdict is. */
  mustHold(name: string): readonly LedgerRow[];
  /** Rows of before that may stay beside the truth. */
  mayStay(name: string): readonly LedgerRow[];
  /** The phase that a case is in. */
  phase(name: string): Phase;
  /** Goes on to the case's next phase. */
  advance(name: string): void;
  /** The time that the lists tell from now on; otherwise the first case's. */
  setListClock(clock: Phase['clock']): void;
  /** From now on the case is answered honestly. */
  heal(name: string): void;
  readonly requests: readonly Asked[];
  close(): Promise<void>;
}

export interface HostileOptions {
  readonly cases: readonly HostileCase[];
  readonly names?: Partial<Names>;
  /** The instant that counts as now, in microseconds; cut to a whole hour. */
  readonly now?: bigint;
}

interface State {
  readonly one: HostileCase;
  readonly party: string;
  phase: Phase;
  following: readonly Phase[];
  isHealed: boolean;
  asked: number;
}

export async function startHostileSource(
  options: HostileOptions,
): Promise<HostileSource> {
  const host = new Host(options);
  await host.listen();
  return host;
}

class Host implements HostileSource {
  readonly now: bigint;
  readonly requests: Asked[] = [];
  url = '';
  private readonly names: Names;
  private readonly states: ReadonlyMap<string, State>;
  private listClock: Phase['clock'] | undefined;
  private readonly sockets = new Set<Socket>();
  private readonly server = createServer((socket) => this.accept(socket));

  constructor(options: HostileOptions) {
    const now = options.now ?? BigInt(Date.now()) * 1000n;
    this.now = now - (now % HOUR);
    this.names = { ...DEFAULT_NAMES, ...options.names };
    this.states = new Map(
      options.cases.map((one) => [one.name, startCase(one)]),
    );
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) =>
      this.server.listen(0, '127.0.0.1', resolve),
    );
    this.url = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  partyOf(name: string): string {
    return this.state(name).party;
  }

  phase(name: string): Phase {
    return this.state(name).phase;
  }

  truth(name: string): readonly LedgerRow[] {
    const { one, party } = this.state(name);
    return this.describe(one, party, this.entries(name));
  }

  mustHold(name: string): readonly LedgerRow[] {
    const { one, party, phase } = this.state(name);
    return this.describe(
      one,
      party,
      phase.expected.mustHold?.(this.entries(name), this.now) ?? [],
    );
  }

  mayStay(name: string): readonly LedgerRow[] {
    const { one, party, phase } = this.state(name);
    return this.describe(one, party, phase.mayStay?.(this.now, party) ?? []);
  }

  private describe(
    { hasEffect, lacks }: HostileCase,
    party: string,
    entries: readonly Entry[],
  ): LedgerRow[] {
    const isTold = ([column]: [string, unknown]): boolean =>
      !lacks.includes(column);
    return entries
      .map((entry) =>
        Object.entries(toLedgerRow(entry, party, hasEffect)).filter(isTold),
      )
      .map((columns) => Object.fromEntries(columns));
  }

  advance(name: string): void {
    const state = this.state(name);
    const [next, ...rest] = state.following;
    if (next === undefined)
      throw new Error(`Cannot advance ${name}: it has no further phase`);
    state.phase = next;
    state.following = rest;
  }

  setListClock(clock: Phase['clock']): void {
    this.listClock = clock;
  }

  heal(name: string): void {
    this.state(name).isHealed = true;
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.server.close(() => resolve());
      for (const socket of this.sockets) socket.destroy();
    });
  }

  private state(name: string): State {
    const state = this.states.get(name);
    if (state === undefined)
      throw new Error(
        `Cannot find the case ${name}: this server does not have it`,
      );
    return state;
  }

  private entries(name: string): readonly Entry[] {
    const { phase, party } = this.state(name);
    return phase.truth(this.now, party);
  }

  private accept(socket: Socket): void {
    this.sockets.add(socket);
    socket.on('close', () => this.sockets.delete(socket));
    socket.on('error', () => undefined);
    let received = '';
    socket.on('data', (bytes: Buffer) => {
      received += bytes.toString('latin1');
      const head = readHead(received);
      if (head === undefined) return;
      socket.removeAllListeners('data').resume();
      void writeReply(socket, this.answer(head));
    });
  }

  private answer(head: Head): Reply {
    const { path, query } = head;
    const clock = this.clockHeaders(query.get(this.names.party));
    if (path === '/api/v2/parties')
      return answerParties(
        [...this.states.values()].map(({ party }) => party),
        query,
        clock,
      );
    if (path === '/api/v2/checkpoints') return answerCheckpoints(clock);
    if (path !== this.names.path) return refusal(404, 'there is nothing here');
    return this.answerExport(head);
  }

  private answerExport({ query, headers }: Head): Reply {
    const party = query.get(this.names.party);
    const state = [...this.states.values()].find((one) => one.party === party);
    if (state === undefined || party === null)
      return refusal(404, 'no such party');
    const asset = query.get(this.names.asset);
    const from = readTime(query.get(this.names.from), this.names.time);
    const to = readTime(query.get(this.names.to), this.names.time);
    const request: ExportRequest = {
      party,
      n: state.asked,
      url: this.url,
      headers,
      ...(asset === null ? {} : { asset }),
      ...(from === undefined ? {} : { from }),
      ...(to === undefined ? {} : { to }),
    };
    state.asked += 1;
    this.requests.push({ ...request, name: state.one.name });
    const answer = state.isHealed ? honestAnswer : state.phase.answer;
    return answer(request, this.entries(state.one.name), this.now);
  }

  /**
   * The time of the last block, in nanoseconds; where cases disagree, that of the first.
   */
  private clockHeaders(party: string | null): Reply['headers'] {
    const all = [...this.states.values()];
    const own = all.find((state) => state.party === party)?.phase.clock;
    const clock = own ?? this.listClock ?? all[0]?.phase.clock ?? 0;
    if (clock === 'none') return [];
    const time = this.now + BigInt(Math.round(clock * 3600)) * 1_000_000n;
    return [
      ['X-Block-Timestamp', String(time * 1000n)],
      ['X-Block-Height', String(time / 1_000_000n)],
    ];
  }
}

function startCase(one: HostileCase): State {
  const party =
    one.party ?? createHash('sha256').update(one.name).digest('hex');
  return {
    one,
    party,
    phase: one,
    following: one.followedBy,
    isHealed: false,
    asked: 0,
  };
}
