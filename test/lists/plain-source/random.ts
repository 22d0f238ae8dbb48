/**
 * A seeded generator (mulberry32): the same seed draws the same rows, faults and
 * scenarios on every machine.
 */
export class Random {
  private state: number;

  constructor(seed: number) {
    this.state = seed >>> 0;
  }

  /** A number in [0, 1). */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `least` to `most`, both included. */
  between(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  chance(share: number): boolean {
    return this.next() < share;
  }

  pick<T>(values: readonly T[]): T {
    const value = values[this.between(0, values.length - 1)];
    if (value === undefined) throw new Error('Cannot pick from an empty list');
    return value;
  }

  hex(characters: number): string {
    return Array.from({ length: characters }, () =>
      this.between(0, 15).toString(16),
    ).join('');
  }
}

/** One number for a text and a seed: an order that looks random and stays. */
export function scatter(text: string, seed: number): number {
  let mixed = seed ^ 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1)
    mixed = Math.imul(mixed ^ text.charCodeAt(at), 0x01000193);
  return new Random(mixed).next();
}
