/**
 * Computes a whole network from one seed: the time of each block, the parties that
 * arrived in it, and the checkpoints. Also tracks how far the network has progressed.
 * Everything happens in blocks, numbered from 1 at genesis.
 */
import { DAY_MICROS, formatInstant, type Micros } from '../../time/time.ts';
import type { Settings } from '../options.ts';
import { openLedger } from './ledger.ts';
import { KIND, noise, openIds, seedWord, STREAM } from './seeded.ts';

export type Network = ReturnType<typeof assembleNetwork>;
/** The newest block, and the time that the network has reached. */
export interface Head {
  readonly block: number;
  readonly time: Micros;
}
export type PartyRow = ReturnType<Network['parties']['row']>;
export type CheckpointRow = ReturnType<Network['checkpoints']['row']>;

export function openNetwork(settings: Settings): Network {
  return assembleNetwork(settings);
}

function assembleNetwork(settings: Settings) {
  const seed = seedWord(settings.seed);
  const ids = openIds(settings.seed);
  const chain = openChain(seed, settings);
  const parties = openParties(seed, settings, ids, chain);
  const checkpoints = openCheckpoints(seed, settings, ids, chain);
  const historyBlocks = chain.blocksIn(settings.historyMs);
  const movementsOfPair = openLedger(
    seed,
    settings,
    historyBlocks,
    parties.arrivalBlock,
  );
  let aheadMicros = 0n;
  let reached = settings.genesis;

  /**
   * Returns how far the network has progressed. This never goes backwards, even if the
   * clock does.
   */
  function head(): Head {
    const now = settings.clock() + aheadMicros;
    if (now > reached) reached = now;
    return { block: chain.newestAt(reached), time: reached };
  }

  /** Moves the network ahead of its clock. */
  function advance(durationMs: number) {
    aheadMicros += BigInt(Math.round(durationMs * 1000));
  }

  return {
    settings,
    ids,
    chain,
    parties,
    checkpoints,
    movementsOfPair,
    head,
    advance,
  };
}

type Ids = ReturnType<typeof openIds>;
type Chain = ReturnType<typeof openChain>;

function openChain(seed: number, { genesis, blockIntervalMs }: Settings) {
  /** The mean interval. Each block is late by up to this much. */
  const intervalMicros = blockIntervalMs * 1000;

  /**
   * Returns a block's time since genesis in microseconds. The value is exact, because
   * even 200 years are less than 2^53 µs. The delay is short enough to keep blocks in
   * order.
   */
  function sinceGenesis(block: number) {
    const word = noise(seed, STREAM.blockTime, block);
    // One block in eight is on time, so that times both with and without a fraction
    // occur.
    return (
      block * intervalMicros + (word % 8 === 0 ? 0 : word % intervalMicros)
    );
  }

  const timeOf = (block: number): Micros =>
    genesis + BigInt(sinceGenesis(block));

  /** Returns the newest block produced by `instant`; 0 if there is none. */
  function newestAt(instant: Micros) {
    const passed = Number(instant - genesis);
    const candidate = Math.floor(passed / intervalMicros);
    if (candidate < 1) return 0;
    return sinceGenesis(candidate) <= passed ? candidate : candidate - 1;
  }

  /** Returns the first block produced at `instant` or later. */
  const firstFrom = (instant: Micros) => newestAt(instant - 1n) + 1;

  /** Returns the number of blocks in a duration, for rates. */
  const blocksIn = (durationMs: number) =>
    Math.max(1, Math.floor((durationMs * 1000) / intervalMicros));

  return { timeOf, newestAt, firstFrom, blocksIn };
}

/**
 * The number of parties in a run. Which parties arrive together is decided for each run.
 */
const RUN_PARTIES = 8;

/**
 * The parties and the order of their list. Parties are numbered as they arrive. Several
 * may arrive in one block; the list then orders them by id, as the service does
 * (vega_time, id).
 */
function openParties(seed: number, settings: Settings, ids: Ids, chain: Chain) {
  const { parties, partiesMax } = settings;
  const historyBlocks = chain.blocksIn(settings.historyMs);

  /**
   * Returns the row of a party that has arrived: its id, the transaction in which it
   * appeared, and the time of that block.
   */
  function row(index: number) {
    const id = ids.id(KIND.party, index);
    const txHash = ids.id(KIND.partyTx, index);
    return { id, txHash, firstSeen: chain.timeOf(arrivalBlock(index)) };
  }

  /**
   * Returns the block in which a party appears. A higher number never appears earlier.
   */
  function arrivalBlock(index: number) {
    // One run always begins at number `parties`. No tie can therefore span the end of the
    // history.
    const shifted = index + RUN_PARTIES - (parties % RUN_PARTIES);
    const within = shifted % RUN_PARTIES;
    const word = noise(
      seed,
      STREAM.partyTies,
      Math.floor(shifted / RUN_PARTIES),
    );
    // In each run, `tied` parties, starting with `leader`, arrive in the same block.
    const leader = word % RUN_PARTIES;
    const tied = 1 + ((word >>> 8) % 4);
    const follows = within > leader && within < leader + tied;
    const place = Math.max(0, index - (follows ? within - leader : 0));
    return 1 + Math.floor((place * historyBlocks) / parties);
  }

  /** Returns how many parties have arrived by `block`. */
  function countBy(block: number) {
    if (block < 1) return 0;
    const guess = Math.min(
      partiesMax,
      Math.floor((block * parties) / historyBlocks),
    );
    let arrived = Math.max(0, guess - 1);
    while (arrived < partiesMax && arrivalBlock(arrived) <= block) arrived += 1;
    return arrived;
  }

  /** Returns the parties that arrived in `block`, in list order. */
  function arrivedIn(block: number) {
    const first = countBy(block - 1);
    const arrived = Array.from({ length: countBy(block) - first }, (_, nth) =>
      row(first + nth),
    );
    return arrived.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  }

  /**
   * Returns the party's number; undefined if no party with this id arrived by `block`.
   */
  function indexOf(id: string, block: number) {
    const index = ids.indexOf(KIND.party, id);
    return index !== undefined && index < countBy(block) ? index : undefined;
  }

  /**
   * Yields rows of the list by position, oldest first. Only complete blocks are visible,
   * so a position always refers to the same row.
   */
  function* rows(from: number, to: number) {
    let first = countBy(arrivalBlock(from) - 1);
    while (first < to) {
      const arrived = arrivedIn(arrivalBlock(first));
      yield* arrived.slice(Math.max(0, from - first), to - first);
      first += arrived.length;
    }
  }

  return { row, arrivalBlock, countBy, arrivedIn, indexOf, rows };
}

/**
 * The number of heights in a stretch of checkpoints. Each stretch has the same number of
 * rows.
 */
const STRETCH_HEIGHTS = 32;
/** Maximum number of rows at one height, more than any page that the tests request. */
const TIE_ROWS_MAX = 1000;

/**
 * The checkpoints: one row at regular intervals, and sometimes several rows at one
 * height, because a withdrawal creates a checkpoint too. Some of these are identical.
 */
function openCheckpoints(
  seed: number,
  settings: Settings,
  ids: Ids,
  chain: Chain,
) {
  const { tieRows, checkpointRetentionMs } = settings;
  /** The number of blocks between two heights with checkpoints. */
  const spacingBlocks = chain.blocksIn(settings.checkpointIntervalMs);
  /** A stretch is divided into sections, and each tied height has its own section. */
  const sectionHeights = Math.floor(STRETCH_HEIGHTS / tieRows.length);
  const stretchRows = tieRows.reduce(
    (sum, rows) => sum + rows - 1,
    STRETCH_HEIGHTS,
  );

  function rowsOf(nthHeight: number) {
    const within = nthHeight % STRETCH_HEIGHTS;
    const section = Math.floor(within / sectionHeights);
    const word = noise(
      seed,
      STREAM.checkpointTies,
      nthHeight - within + section,
    );
    const isTied =
      within === section * sectionHeights + (word % sectionHeights);
    return (isTied ? tieRows[section] : undefined) ?? 1;
  }

  /** Returns the total number of rows at the heights before the nth. */
  function rowsBefore(nth: number) {
    const within = nth % STRETCH_HEIGHTS;
    let rows = Math.floor(nth / STRETCH_HEIGHTS) * stretchRows;
    for (let height = nth - within; height < nth; height += 1)
      rows += rowsOf(height);
    return rows;
  }

  /** Returns the first position at `block` or later. */
  const floor = (block: number) =>
    rowsBefore(Math.max(0, Math.ceil(block / spacingBlocks) - 1));

  /**
   * Returns the number of the checkpoint that the nth row of a height shows. Half of the
   * tied rows repeat the previous row.
   */
  function distinct(nthHeight: number, nth: number) {
    const word = noise(seed, STREAM.checkpointTwins, nthHeight);
    let shown = nth;
    while (shown > 0 && ((word >>> (shown % 32)) & 1) === 1) shown -= 1;
    return shown;
  }

  /**
   * Returns the positions that are served at a head: `from` is inclusive, `to` is
   * exclusive.
   */
  function visible({ block, time }: Head) {
    const to = rowsBefore(Math.floor(block / spacingBlocks));
    if (checkpointRetentionMs === Infinity) return { from: 0, to };
    const oldest = time - BigInt(checkpointRetentionMs) * 1000n;
    return {
      from: Math.min(
        to,
        floor(chain.firstFrom(oldest - (oldest % DAY_MICROS))),
      ),
      to,
    };
  }

  /**
   * Returns the row at a position.
   * @param turn shifts the rows within one height, because the service does not define
   *   their order, which varies with the query plan
   */
  function row(position: number, turn = 0) {
    let height = Math.floor(position / stretchRows) * STRETCH_HEIGHTS;
    let before = rowsBefore(height);
    for (; before + rowsOf(height) <= position; height += 1)
      before += rowsOf(height);
    const atBlock = (height + 1) * spacingBlocks;
    const nth = distinct(height, (position - before + turn) % rowsOf(height));
    const hash = ids.id(KIND.state, atBlock * TIE_ROWS_MAX + nth);
    return { hash, blockHash: ids.id(KIND.block, atBlock), atBlock };
  }

  return { floor, visible, row };
}

/** Formats a time as Go does, without trailing zeros: `2023-05-01T10:00:00.1234Z`. */
export function rfc3339Nano(instant: Micros): string {
  return formatInstant(instant).replace(/\.?0*Z$/, 'Z');
}

/** Formats a time as Postgres writes a timestamptz: `2023-05-01 10:00:00.1234+00`. */
export function timestamptz(instant: Micros): string {
  return rfc3339Nano(instant).replace('T', ' ').replace('Z', '+00');
}
