/** A seeded sequence of nights of a mirror whose source is a fleet. */
import { setTimeout as sleep } from 'node:timers/promises';
import { enqueueRun } from '../../src/runs/enqueue.ts';
import type { NewRun, Run } from '../../src/runs/store/run-store.ts';
import { Random } from '../lists/plain-source/random.ts';
import { ageMirror } from '../support/measure/simulated-nights.ts';
import { BLOCKS_A_DAY, Chain } from './chain.ts';
import { copyServed, type Fleet, nothingServed } from './fleet.ts';
import { readHeld, uncoveredLedgers } from './held.ts';
import type { MirrorProcess } from './mirror-process.ts';
import { headOf, type FleetNode } from './node.ts';
import { findLies } from './oracle.ts';

/** How soon a kill takes effect. */
const LOOK_MS = 20;
/** The database is asked this often: its answers cost as much as the mirror's own. */
const LOOKS_EACH = 5;
/** A night that takes longer hangs. */
const NIGHT_MAX_MS = 400_000;
const CALM_NIGHTS = 2;
/** The pruned node serves checkpoints and entries of so many blocks. */
const KEPT_BLOCKS = 4n * BLOCKS_A_DAY;
const START_DAYS_AGO = 60;
const TIP: FleetNode = { kind: 'tip', lag: 0n };

/** What a night meets, beside the nodes that answer in it. */
type Event =
  | 'growth within the night'
  | 'rows inserted'
  | 'party removed'
  | 'ids respelled'
  | 'wrong URL'
  | 'reset'
  | 'kill';

export interface Outcome {
  /** What must not be, in words. */
  readonly wrong: readonly string[];
  /** What happened, one line a night. */
  readonly story: readonly string[];
}

export class Sequence {
  readonly #random: Random;
  readonly #mirror: MirrorProcess;
  readonly #fleet: Fleet;
  #chain: Chain;
  #network = 1;
  #nights = 0;
  #isPastFirst = false;
  readonly #wrong: string[] = [];
  readonly #story: string[] = [];
  #snapshot: FleetNode | undefined;

  constructor(seed: number, fleet: Fleet, mirror: MirrorProcess) {
    this.#random = new Random(seed);
    this.#mirror = mirror;
    this.#fleet = fleet;
    this.#chain = fleet.chain;
  }

  async play(): Promise<Outcome> {
    const nights = this.#random.between(2, 5);
    for (let night = 1; night <= nights; night += 1)
      await this.#night(this.#drawEvents());
    for (let night = 1; night <= CALM_NIGHTS; night += 1) {
      const verdict = await this.#night([], true);
      if (night === CALM_NIGHTS && verdict !== 'complete')
        this.#wrong.push(`stuck: the last calm night was ${verdict}`);
    }
    return { wrong: this.#wrong, story: this.#story };
  }

  #drawEvents(): readonly Event[] {
    const random = this.#random;
    const events: Event[] = [];
    if (random.chance(0.4)) events.push('growth within the night');
    if (random.chance(0.2)) events.push('rows inserted');
    if (random.chance(0.2)) events.push('party removed');
    if (random.chance(0.1)) events.push('ids respelled');
    if (random.chance(0.06)) events.push('kill');
    // A mirror that knows no network takes the first that it meets for its own.
    if (!this.#isPastFirst) return events;
    if (random.chance(0.08)) events.push('wrong URL');
    else if (random.chance(0.05)) events.push('reset');
    return events;
  }

  async #night(events: readonly Event[], isCalm = false): Promise<string> {
    const fleet = this.#fleet;
    this.#nights += 1;
    await ageMirror(this.#mirror.pool, 1);
    this.#chain.grow(BLOCKS_A_DAY);
    if (events.includes('rows inserted')) this.#chain.insert();
    if (events.includes('party removed')) this.#chain.removeParty();
    if (events.includes('ids respelled')) this.#chain.respell();
    if (events.includes('reset')) await this.#reset();
    const isForeign = events.includes('wrong URL');
    fleet.chain = isForeign ? this.#makeForeign() : this.#chain;
    fleet.nodes = isCalm || isForeign ? [TIP] : this.#drawNodes();
    const servedBefore = fleet.ever;
    if (isForeign) fleet.ever = nothingServed();
    fleet.lately = nothingServed();
    const startHeight = fleet.chain.height;
    this.#meetWithin(events);
    const run = await this.#run({ kind: 'nightly', subject: 'now' });
    fleet.onRequest = () => undefined;
    const verdict = run.verdict ?? run.state;
    const lies = verdict === 'complete' ? await this.#judge(startHeight) : [];
    if (isForeign) {
      fleet.ever = servedBefore;
      if (verdict === 'complete') lies.push('another network is complete');
    }
    this.#isPastFirst ||= verdict === 'complete';
    const nodes = fleet.nodes.map(
      (node) => `${node.kind}@${headOf(node, fleet.chain)}`,
    );
    const why =
      verdict === 'complete'
        ? ''
        : ` ${explain(run, await uncoveredLedgers(this.#mirror.pool))}`;
    this.#story.push(
      `night ${this.#nights}: [${events.join(', ')}] ${nodes.join(' ')} → ${verdict}${why}`,
    );
    this.#wrong.push(...lies.map((lie) => `night ${this.#nights}: ${lie}`));
    return verdict;
  }

  async #judge(startHeight: bigint): Promise<string[]> {
    const { chain, ever, lately } = this.#fleet;
    const held = await readHeld(this.#mirror.pool);
    // The pruned node keeps by its own head, which moves on within the night.
    const keptFrom = chain.height - KEPT_BLOCKS;
    return findLies(held, { chain, startHeight, keptFrom, ever, lately });
  }

  /** One node lags, one is of an older snapshot, one is pruned; some are away. */
  #drawNodes(): readonly FleetNode[] {
    const random = this.#random;
    this.#snapshot ??= {
      kind: 'snapshot',
      lag: 0n,
      frozenAt: this.#chain.height - BigInt(random.between(1, 200)),
    };
    const lagging: FleetNode = {
      kind: 'lagging',
      lag: BigInt(random.between(1, 120)),
    };
    const pruned: FleetNode = { kind: 'pruned', lag: 0n, keeps: KEPT_BLOCKS };
    const nodes = [TIP, TIP];
    if (random.chance(0.6)) nodes.push(lagging);
    if (random.chance(0.3)) nodes.push(this.#snapshot);
    if (random.chance(0.4)) nodes.push(pruned);
    if (random.chance(0.1)) return [lagging];
    return nodes;
  }

  #meetWithin(events: readonly Event[]): void {
    const fleet = this.#fleet;
    const random = this.#random;
    const growAt = events.includes('growth within the night')
      ? fleet.requests + random.between(2, 12)
      : Infinity;
    const servedBefore = copyServed(fleet.ever);
    const killAt = events.includes('kill')
      ? fleet.requests + random.between(1, 20)
      : Infinity;
    fleet.onRequest = (requests) => {
      if (requests === growAt) fleet.chain.grow(BigInt(random.between(1, 5)));
      if (requests !== killAt) return;
      // Nobody lives who has seen what was not committed, nor what was answered until the
      // process was gone.
      this.#mirror.kill(() => {
        fleet.ever = servedBefore;
        fleet.lately = nothingServed();
      });
    };
  }

  /** The chain begins again, and a person says that this is right. */
  async #reset(): Promise<void> {
    this.#chain = this.#makeChain(200n + BigInt(this.#random.between(0, 100)));
    this.#snapshot = undefined;
    this.#fleet.chain = this.#chain;
    this.#fleet.nodes = [TIP];
    this.#fleet.ever = nothingServed();
    const params = { full: true, acceptNewNetwork: true };
    for (const subject of ['parties', 'checkpoints'])
      await this.#run({ kind: 'sync', subject, params });
  }

  /** Another network, with heights above or below ours. */
  #makeForeign(): Chain {
    return this.#makeChain(
      this.#random.chance(0.5) ? 1_000_000n : this.#chain.height / 2n,
    );
  }

  #makeChain(height: bigint): Chain {
    this.#network += 1;
    return makeChain(this.#random, this.#network, height, this.#chain.time);
  }

  /** Follows the run, through the death of the process that works it. */
  async #run(order: NewRun): Promise<Run> {
    const { runId } = await this.#mirror.app.jobs.runs.create(order);
    const created = await this.#mirror.app.jobs.runs.get(runId);
    if (created !== undefined) await enqueueRun(created, this.#mirror.app.jobs);
    const untilMs = Date.now() + NIGHT_MAX_MS;
    for (let look = 1; Date.now() < untilMs; look += 1) {
      await this.#mirror.recover();
      if (look % LOOKS_EACH === 0 && (await this.#mirror.hasEnded(runId))) {
        const run = await this.#mirror.app.jobs.runs.get(runId);
        if (run !== undefined) return run;
      }
      await sleep(LOOK_MS);
    }
    throw new Error(`Run ${runId} does not end`);
  }
}

/** @param network a number that no other chain of the sequence has */
export function makeChain(
  random: Random,
  network: number,
  height: bigint,
  time = BigInt(Date.now() - START_DAYS_AGO * 86_400_000) * 1000n,
): Chain {
  return new Chain(random, {
    height,
    time,
    parties: random.between(8, 12),
    checkpoints: random.between(15, 30),
    firstNumber: network * 1_000_000,
  });
}

/** The parts of a night's evidence that say why it was not complete. */
function explain({ evidence }: Run, uncovered: readonly string[]): string {
  const { lists, exports, mirror, load, verify } = evidence as Readonly<
    Record<string, Readonly<Record<string, unknown>> | undefined>
  >;
  const told = {
    ...pick(lists, 'parties'),
    ...pick(lists, 'checkpoints'),
    exports: pickSome(exports, [
      'verdict',
      'failed',
      'unasked',
      'notDue',
      'reason',
    ]),
    failures: exports?.['failures'],
    uncovered: uncovered.length === 0 ? undefined : uncovered,
    doubted: first(exports?.['doubted']),
    load: load?.['verdict'],
    verify: verify?.['verdict'] === 'complete' ? 'complete' : verify,
    reasons: mirror?.['reasons'],
    error: evidence['error'],
  };
  return JSON.stringify(told);
}

/** All that a list's sync found, unless it is complete. */
function pick(lists: object | undefined, name: string): object {
  const list = (lists as Record<string, { verdict?: string }> | undefined)?.[
    name
  ];
  return { [name]: list?.verdict === 'complete' ? 'complete' : list };
}

function pickSome(of: object | undefined, names: readonly string[]): object {
  return Object.fromEntries(
    Object.entries(of ?? {}).filter(([name]) => names.includes(name)),
  );
}

function first(list: unknown): unknown {
  return Array.isArray(list) ? (list as unknown[])[0] : undefined;
}
