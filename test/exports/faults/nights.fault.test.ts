/**
 * Seeded nights of a source that grows, forgets, begins again, breaks and refuses, and of
 * a mirror that is killed and rests. Whatever happens, each night ends; what the source
 * still serves is not lost; and `complete` is never said over less than the source's own
 * truth. `NIGHTS` says how many, `SEED` where they begin.
 */
import { currentSegments } from '../../support/mirror-state.ts';
import { randomUUID } from 'node:crypto';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { PermanentError, RetryableError } from '../../../src/errors/errors.ts';
import { formatInstant, type Micros } from '../../../src/time/time.ts';
import type {
  ExportAnswer,
  LedgerSource,
  WindowRequest,
} from '../../../src/exports/ports.ts';
import type { PublishStep } from '../../../src/exports/export-context.ts';
import type { ExportRepository } from '../../../src/exports/store/export-repository.ts';
import { BatchStore } from '../../../src/exports/store/batch-store.ts';
import { ExportStore } from '../../../src/exports/store/export-store.ts';
import { compressionOf, plainStream } from '../../../src/ledger/object-keys.ts';
import {
  type Database,
  openWarehouse,
} from '../../../src/postgres/database.ts';
import { HEADER_13 } from '../../ledger/csv.ts';
import { Random } from '../../lists/plain-source/random.ts';
import { freshDatabase } from '../../support/database.ts';
import { signal, World } from '../export-world.ts';
import { clockAt, row13 } from '../ledger-double.ts';

const database = await freshDatabase({ isMigrated: true });
const NIGHTS = Number(process.env['NIGHTS'] ?? 500);
const SEED = Number(process.env['SEED'] ?? 1);
const NIGHTS_A_WORLD = 25;
/**
 * At the end of each world nothing goes wrong any more: what is doubted three times is
 * believed.
 */
const CALM_NIGHTS = 4;
const PARTIES = ['aa', 'bb'].map((digits) => digits.repeat(32));
const TRIES_MAX = 4;
const SECOND = 1_000_000n;
const DAY = 86_400n * SECOND;
const STEPS: readonly PublishStep[] = [
  'claimed',
  'asked',
  'spooled',
  'intended',
  'object',
  'manifest',
  'committed',
];

interface Booked {
  readonly party: string;
  readonly time: Micros;
  readonly row: string;
}

/** What one answer meets on its way. */
type Fault =
  | 'none'
  | 'refused'
  | 'broken'
  | 'cut'
  | 'error at the end'
  | 'killed';

const FAULTS: readonly Fault[] = [
  'refused',
  'broken',
  'cut',
  'error at the end',
  'killed',
];

/** A source in memory, with the truth that everything is held against. */
class Network implements LedgerSource {
  readonly baseUrl = 'http://network.double';
  readonly hasTimes = true;
  readonly #random: Random;
  /** The source serves nothing that is older than so many days. */
  readonly #keptDays: number;
  now: Micros;
  epoch = 1;
  /** Ever booked, of all epochs; and what is served of it. */
  readonly booked: Booked[] = [];
  served: Booked[] = [];
  fault: Fault = 'none';
  requests = 0;
  #number = 0;

  constructor(random: Random, keptDays: number) {
    this.#random = random;
    this.#keptDays = keptDays;
    this.now = BigInt(Date.UTC(2024, 0, 1)) * 1000n;
  }

  pass(days: number): void {
    const before = this.now;
    this.now +=
      BigInt(days) * DAY + BigInt(this.#random.between(0, 80_000)) * SECOND;
    for (const party of PARTIES) {
      if (this.#random.chance(0.3)) continue;
      for (let left = this.#random.between(1, 120); left > 0; left -= 1)
        this.#book(party, before);
    }
    const oldest = this.now - BigInt(this.#keptDays) * DAY;
    this.served = this.served.filter(({ time }) => time >= oldest);
  }

  reset(isNoticed: boolean): void {
    this.served = [];
    if (isNoticed) this.epoch += 1;
  }

  #book(party: string, before: Micros): void {
    this.#number += 1;
    const seconds = Number((this.now - before) / SECOND);
    // Now and then two of a moment, or one that is repeated in every field.
    const last = this.served.at(-1);
    if (
      last?.party === party &&
      last.time > before &&
      this.#random.chance(0.1)
    ) {
      this.booked.push(last);
      this.served.push(last);
      return;
    }
    const near = this.#random.chance(0.1)
      ? this.#random.between(0, 200)
      : this.#random.between(0, seconds);
    const time =
      this.now -
      BigInt(Math.min(near, seconds - 1)) * SECOND -
      BigInt(this.#random.between(1, 999_999));
    const written = formatInstant(time).replace('T', ' ').replace('Z', '+00');
    const entry = {
      party,
      time,
      row: row13({
        time: written,
        quantity: BigInt(this.#number),
        from: party,
      }),
    };
    this.booked.push(entry);
    this.served.push(entry);
  }

  ask({ partyId, from = 0n, to }: WindowRequest): Promise<ExportAnswer> {
    this.requests += 1;
    const { fault } = this;
    if (fault === 'refused') {
      this.fault = 'none';
      throw new RetryableError('Cannot export: 503', { code: 'SOURCE_STATUS' });
    }
    const rows = this.served
      .filter(
        (entry) =>
          entry.party === partyId &&
          entry.time >= from &&
          (to === undefined || entry.time < to),
      )
      .map(({ row }) => row);
    const turn = this.#random.between(0, Math.max(0, rows.length - 1));
    const lines = [HEADER_13, ...rows.slice(turn), ...rows.slice(0, turn)].map(
      (line) => `${line}\n`,
    );
    return Promise.resolve({
      form: () => 'csv',
      isFramed: true,
      chunks: this.#chunks(lines),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    });
  }

  async *#chunks(lines: readonly string[]): AsyncGenerator<Buffer> {
    const { fault } = this;
    if (fault !== 'killed') this.fault = 'none';
    const stop =
      fault === 'broken' ? this.#random.between(1, lines.length) : lines.length;
    for (let at = 0; at < stop; at += 20)
      yield Buffer.from(lines.slice(at, Math.min(at + 20, stop)).join(''));
    if (fault === 'broken')
      throw new RetryableError('Cannot export: it broke', {
        code: 'SOURCE_BROKE',
      });
    if (fault === 'cut') yield Buffer.from('2024-01-01 00:00:00+00,1,');
    if (fault === 'error at the end')
      yield Buffer.from('{"error":{"code":13,"message":"failed"}}');
  }
}

class Epochs extends ExportStore {
  network: Network | undefined;

  override epoch(): Promise<number | undefined> {
    return Promise.resolve(this.network?.epoch);
  }
}

class Killed extends RetryableError {}

/** One mirror and its source, and what was seen of both. */
class Simulation {
  readonly #random: Random;
  readonly #world: World;
  readonly #repository: ExportStore;
  readonly #db: Database;
  readonly #network: Network;
  readonly #objects = new Map<string, readonly string[]>();
  readonly #held = new Map<string, ReadonlyMap<string, number>>();
  readonly #segmentBytesMax: number;
  /** What must not be, in words. */
  readonly wrong: string[] = [];
  #nights = 0;

  constructor(seed: number, world: World, repository: Epochs, db: Database) {
    this.#random = new Random(seed);
    this.#world = world;
    this.#repository = repository;
    this.#db = db;
    this.#network = new Network(
      this.#random,
      this.#random.pick([100_000, 100_000, 200, 30]),
    );
    repository.network = this.#network;
    this.#segmentBytesMax = this.#random.pick([2 ** 28, 2 ** 14]);
  }

  async night(isCalm: boolean): Promise<void> {
    const random = this.#random;
    this.#nights += 1;
    this.#network.pass(
      random.chance(0.1) && !isCalm ? random.between(10, 150) : 1,
    );
    if (!isCalm && random.chance(0.04)) this.#network.reset(random.chance(0.7));
    const verdicts = random.chance(0.5)
      ? await this.#together(isCalm)
      : await this.#alone(isCalm);
    for (const [party, verdict] of verdicts) {
      await this.#check(party, verdict);
      if (isCalm && verdict === 'failed') this.#tell('a calm night failed');
    }
  }

  async #alone(
    isCalm: boolean,
    repository: ExportRepository = this.#repository,
  ): Promise<Map<string, string>> {
    const verdicts = new Map<string, string>();
    for (const party of PARTIES) {
      const before = this.#network.requests;
      verdicts.set(party, await this.#export(party, isCalm, repository));
      const requests = this.#network.requests - before;
      if (requests > 60 * TRIES_MAX)
        this.#tell(`${requests} requests in one night`);
    }
    return verdicts;
  }

  /**
   * Leased together, and written together: what was not written, or whose lease was lost,
   * was not done.
   */
  async #together(isCalm: boolean): Promise<Map<string, string>> {
    const batch = await BatchStore.open(this.#db, PARTIES);
    batch.epoch = () => Promise.resolve(this.#network.epoch);
    try {
      const verdicts = await this.#alone(isCalm, batch);
      const isKilled = !isCalm && this.#random.chance(0.2);
      const lost = isKilled ? PARTIES : await batch.write();
      for (const party of lost) verdicts.set(party, 'failed');
      return verdicts;
    } finally {
      await batch[Symbol.asyncDispose]();
    }
  }

  /** Tried as often as the queue would. */
  async #export(
    partyId: string,
    isCalm: boolean,
    repository: ExportRepository,
  ): Promise<string> {
    const runId = randomUUID();
    const seenTime = this.#network.now;
    const request = {
      partyId,
      runId,
      clock: clockAt(seenTime),
      auditShare: 0.05,
    };
    for (let attempt = 1; attempt <= TRIES_MAX; attempt += 1) {
      const killedAt = isCalm ? undefined : this.#meet();
      try {
        const { verdict } = await this.#world.export(
          formatInstant(seenTime),
          request,
          {
            source: this.#network,
            repository,
            segmentBytesMax: this.#segmentBytesMax,
            pauseMs: () => 0,
            failpoint: (step) => {
              if (step === killedAt)
                throw new Killed('killed', { code: 'KILLED' });
            },
          },
        );
        return verdict;
      } catch (error) {
        if (
          !(error instanceof RetryableError) &&
          !(error instanceof PermanentError)
        )
          throw error;
        if (error instanceof PermanentError) break;
        await this.#world.expireLeases();
      }
    }
    return 'failed';
  }

  #meet(): PublishStep | undefined {
    const fault: Fault = this.#random.chance(0.6)
      ? 'none'
      : this.#random.pick(FAULTS);
    this.#network.fault = fault;
    return fault === 'killed' ? this.#random.pick(STEPS) : undefined;
  }

  async #check(party: string, verdict: string): Promise<void> {
    const held = await this.#rows(party);
    const booked = counted(
      this.#network.booked.filter((entry) => entry.party === party),
    );
    const served = counted(
      this.#network.served.filter((entry) => entry.party === party),
    );
    this.#expectNone(lacking(booked, held), 'nobody booked, or too often');
    this.#expectNone(
      lacking(held, this.#held.get(party) ?? new Map()),
      'were held and are lost',
    );
    if (verdict === 'complete')
      this.#expectNone(
        lacking(held, served),
        'are served, and lack under complete',
      );
    this.#held.set(party, held);
  }

  #expectNone(rows: readonly string[], what: string): void {
    if (rows.length > 0)
      this.#tell(`${rows.length} rows ${what}: ${rows[0]?.slice(0, 60)}`);
  }

  #tell(what: string): void {
    this.wrong.push(`night ${this.#nights}: ${what}`);
  }

  /** Nothing that the source still serves is missing, and the last verdict says so. */
  async end(): Promise<void> {
    for (const party of PARTIES) {
      const served = counted(
        this.#network.served.filter((entry) => entry.party === party),
      );
      this.#expectNone(
        lacking(await this.#rows(party), served),
        'are served, and not held at the end',
      );
      const verdict = await this.#export(party, true, this.#repository);
      if (verdict !== 'complete') this.#tell(`the last verdict is ${verdict}`);
    }
  }

  async #rows(party: string): Promise<ReadonlyMap<string, number>> {
    const segments = (await currentSegments(this.#world.pool)).filter(
      ({ partyId }) => partyId === party,
    );
    const counts = new Map<string, number>();
    for (const { objectKey: key } of segments)
      for (const row of await this.#object(key))
        counts.set(row, (counts.get(row) ?? 0) + 1);
    return counts;
  }

  /** Objects never change. */
  async #object(key: string): Promise<readonly string[]> {
    const known = this.#objects.get(key);
    if (known !== undefined) return known;
    const csv = await text(
      plainStream(
        await this.#world.objects.read(key, signal),
        compressionOf(key),
      ),
    );
    const lines = csv.split('\n').slice(1, -1);
    this.#objects.set(key, lines);
    return lines;
  }
}

function counted(entries: readonly Booked[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const { row } of entries) counts.set(row, (counts.get(row) ?? 0) + 1);
  return counts;
}

/** Rows of the second multiset that the first has not as often. */
function lacking(
  one: ReadonlyMap<string, number>,
  other: ReadonlyMap<string, number>,
): string[] {
  return [...other]
    .filter(([row, count]) => (one.get(row) ?? 0) < count)
    .map(([row]) => row);
}

describe('a series of nightly exports', () => {
  const worlds = Array.from(
    { length: Math.ceil(NIGHTS / NIGHTS_A_WORLD) },
    (_, at) => SEED + at,
  );
  test.each(worlds)(
    'ends, loses no row that is served, and says complete only where it holds all of them (seed %i)',
    async (seed) => {
      await using world = await World.open(database);
      await using warehouse = openWarehouse({
        url: database.url,
        onIdleError: () => undefined,
      });
      const simulation = new Simulation(
        seed,
        world,
        new Epochs(warehouse.db),
        warehouse.db,
      );
      for (let night = 1; night <= NIGHTS_A_WORLD; night += 1)
        await simulation.night(night > NIGHTS_A_WORLD - CALM_NIGHTS);
      await simulation.end();
      expect(simulation.wrong).toEqual([]);
    },
    120_000,
  );
});
