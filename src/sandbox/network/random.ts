/**
 * Seeded noise. The sandbox stores nothing: whatever it needs to know about party 77 or block 4,711 is
 * computed again each time from the seed, the subject (a stream) and its number.
 */
import { createHash } from 'node:crypto';

/** What a noise value is about. Two subjects never share a value, whatever their numbers. */
export const STREAM = {
  blockTime: 1,
  partyTies: 2,
  activity: 3,
  phase: 4,
  pair: 5,
  checkpointTies: 6,
  checkpointTwins: 7,
  level: 8,
  rowOrder: 9,
  entryOffset: 10,
} as const;

/** The number that stands for a seed text in `noise`. */
export function seedWord(seed: string): number {
  return createHash('sha256').update(seed).digest().readUInt32LE(0);
}

/**
 * An unsigned 32-bit value that looks random and depends on all three arguments alone.
 * @param index a whole number below 2^53
 */
export function noise(seed: number, stream: number, index: number): number {
  let word = scramble(seed ^ Math.imul(stream, 0x9e3779b1));
  word = scramble(word ^ (index >>> 0));
  return index < 0x1_0000_0000 ? word : scramble(word ^ Math.floor(index / 0x1_0000_0000));
}

/** `noise` as a fraction: above 0, at most 1. */
export function fraction(word: number): number {
  return (word + 1) / 0x1_0000_0000;
}

/** The next value of a sequence that began with a noise value (for several rolls about one subject). */
export function scramble(word: number): number {
  let mixed = (word + 0x6d2b79f5) | 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b);
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35);
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
