/**
 * Compares this machine's clock with the clocks of the services that it uses. Leases use
 * the database's clock; the source's clock limits how far ranges can be closed.
 */
import { randomUUID } from 'node:crypto';
import type { ObjectStore } from '../storage/object-store.ts';
import { type Micros, nowMicros } from '../time/time.ts';

const SKEW_MAX_MS = 60_000;
/**
 * Maximum normal age of the newest block. Blocks appear every few seconds, so an older
 * one means that the source has stalled or that our clock is ahead.
 */
const HEAD_AGE_MAX_MS = 600_000;

export interface OtherClock {
  /** The owner of the clock, in the possessive: "the database's". */
  readonly whose: string;
  /** How far the clock is ahead of this machine's; negative if it is behind. */
  readonly aheadMs: number;
}

export interface ClockFinding {
  readonly isRight: boolean;
  readonly detail: string;
}

/**
 * Compares the clocks, and says which one to set.
 * @param headAheadMs how far the time of the source's last block is ahead of this
 *   machine's clock; undefined if the source does not report it
 */
export function compareClocks(
  others: readonly OtherClock[],
  headAheadMs: number | undefined,
): ClockFinding {
  const off = others.filter(({ aheadMs }) => Math.abs(aheadMs) > SKEW_MAX_MS);
  if (off.length > 0)
    return { isRight: false, detail: describeSkew(others, off) };
  if (headAheadMs !== undefined && headAheadMs < -HEAD_AGE_MAX_MS) {
    const old = `the source's last block is ${seconds(headAheadMs)} old`;
    // The Date header of the source's responses distinguishes a lagging source from a
    // fast clock.
    const isSure = others.some(({ whose }) => whose === "the source's");
    return {
      isRight: false,
      detail: isSure
        ? `${old}, and the clocks agree: the source is not advancing`
        : `${old}: it is not advancing, or this machine's clock is fast`,
    };
  }
  if (headAheadMs !== undefined && headAheadMs > SKEW_MAX_MS)
    return {
      isRight: false,
      detail:
        `the source's last block is ${seconds(headAheadMs)} ahead of this ` +
        "machine's clock; set it by NTP",
    };
  const largestMs = Math.max(
    0,
    ...others.map(({ aheadMs }) => Math.abs(aheadMs)),
  );
  const within = Math.max(1, Math.ceil(largestMs / 1000));
  return {
    isRight: true,
    detail: `agrees with ${joined(others)} to within ${within} s`,
  };
}

/**
 * Says which clock to set:
 * - a service's clock, if only that one differs and at least two others agree
 * - this machine's clock, if several differ and none agrees
 * - both, in all other cases
 */
function describeSkew(
  others: readonly OtherClock[],
  off: readonly OtherClock[],
): string {
  const right = others.filter((other) => !off.includes(other));
  const [only] = off;
  if (only !== undefined && off.length === 1 && right.length > 1)
    return (
      `${only.whose} clock is ${direction(only)} this machine's, which agrees ` +
      `with ${joined(right)}; set it by NTP`
    );
  const told = off.map((other) => `${other.whose} is ${direction(other)} it`);
  const which = off.length > 1 && right.length === 0 ? 'it' : 'both';
  return `this machine's clock differs: ${told.join(', ')}; set ${which} by NTP`;
}

function direction({ aheadMs }: OtherClock): string {
  return `${seconds(aheadMs)} ${aheadMs > 0 ? 'ahead of' : 'behind'}`;
}

function joined(clocks: readonly OtherClock[]): string {
  const names = clocks.map(({ whose }) => whose);
  const last = names.pop() ?? '';
  return names.length === 0 ? last : `${names.join(', ')} and ${last}`;
}

function seconds(ms: number): string {
  return `${Math.abs(Math.round(ms / 1000))} s`;
}

/** Returns how far another clock, read just now, is ahead of this machine's. */
export function msAhead(other: Micros): number {
  return Number((other - nowMicros()) / 1000n);
}

/**
 * Reads the clock of an object store: the time that the store records for an object
 * written now.
 * @returns undefined if the store does not report a time
 */
export async function readStoreClock(
  store: Pick<ObjectStore, 'publishBytes' | 'list' | 'remove'>,
  signal: AbortSignal,
): Promise<OtherClock | undefined> {
  const key = `probe/${randomUUID()}-clock`;
  await store.publishBytes(key, Buffer.from('clock\n'), signal);
  const writtenAt = nowMicros();
  try {
    for await (const { modifiedAt } of store.list(key, signal)) {
      if (modifiedAt === 0n) return undefined;
      const ms = Number((modifiedAt - writtenAt) / 1000n);
      return { whose: "the object store's", aheadMs: ms };
    }
    return undefined;
  } finally {
    await store.remove(key, signal);
  }
}
