/**
 * The chain: which block was made when. A block is known by its ordinal, counted from 1 at genesis; only
 * the height that is shown (`firstHeight` + ordinal − 1) can be larger than a JavaScript number holds.
 */
import { formatInstant, type Micros } from '../../core/time.ts';
import type { Settings } from '../options.ts';
import { noise, type openIds, STREAM } from './seeded.ts';

/** What parties, checkpoints and ledger are computed from. */
export interface Foundation {
  readonly seed: number;
  readonly settings: Settings;
  readonly ids: ReturnType<typeof openIds>;
  readonly chain: Chain;
}

export interface Chain {
  heightOf(block: number): bigint;
  /** @returns the block of that height; it may be one that was never made */
  blockOf(height: bigint): number;
  timeOf(block: number): Micros;
  /** The newest block that was made by `instant`; 0 where there was none. */
  newestAt(instant: Micros): number;
  /** The first block that was made at `instant` or later. */
  firstFrom(instant: Micros): number;
  /** Blocks per duration, for rates. */
  blocksIn(durationMs: number): number;
}

export function openChain(seed: number, { genesis, firstHeight, blockIntervalMs }: Settings): Chain {
  /** The mean; each block is up to this much late. */
  const intervalMicros = blockIntervalMs * 1000;

  /** Exact: a network of 200 years still lies below 2^53 µs. The delay keeps the blocks' order. */
  function sinceGenesis(block: number) {
    const word = noise(seed, STREAM.blockTime, block);
    // One block in eight is on time, so that times with and without a fraction occur.
    return block * intervalMicros + (word % 8 === 0 ? 0 : word % intervalMicros);
  }

  function newestAt(instant: Micros) {
    const passed = Number(instant - genesis);
    const candidate = Math.floor(passed / intervalMicros);
    if (candidate < 1) return 0;
    return sinceGenesis(candidate) <= passed ? candidate : candidate - 1;
  }

  return {
    newestAt,
    firstFrom: (instant) => newestAt(instant - 1n) + 1,
    heightOf: (block) => firstHeight + BigInt(block - 1),
    blockOf: (height) => Number(height - firstHeight) + 1,
    timeOf: (block) => genesis + BigInt(sinceGenesis(block)),
    blocksIn: (durationMs) => Math.max(1, Math.floor((durationMs * 1000) / intervalMicros)),
  };
}

/** `2023-05-01T10:00:00.1234Z`, as Go writes it: without trailing zeros. */
export function rfc3339Nano(instant: Micros): string {
  return formatInstant(instant).replace(/\.?0*Z$/, 'Z');
}

/** `2023-05-01 10:00:00.1234+00`, as Postgres writes a timestamptz. */
export function timestamptz(instant: Micros): string {
  return rfc3339Nano(instant).replace('T', ' ').replace('Z', '+00');
}
