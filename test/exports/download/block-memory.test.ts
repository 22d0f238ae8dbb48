/** The memory of blocks: which of it is reused, and how much of it is kept. */
import { describe, expect, test } from 'vitest';
import { BlockMemory } from '../../../src/exports/download/block-memory.ts';

describe('the memory of a pool of row threads', () => {
  test('reuses a block that was given back, by any slice that begins where it does', () => {
    const memory = new BlockMemory(64, 2);
    const block = memory.take(10);
    memory.giveBack(block.subarray(0, 10));
    const again = memory.take(64);
    expect(again.buffer).toBe(block.buffer);
    expect(again).toHaveLength(64);
  });

  test('does not lend a block twice', () => {
    const memory = new BlockMemory(64, 2);
    const blocks = [memory.take(1), memory.take(1), memory.take(1)];
    expect(new Set(blocks.map(({ buffer }) => buffer)).size).toBe(3);
  });

  test('can be shared with threads', () => {
    expect(new BlockMemory(64, 2).take(1).buffer).toBeInstanceOf(
      SharedArrayBuffer,
    );
  });

  test('keeps no more blocks than it is told', () => {
    const memory = new BlockMemory(64, 1);
    const first = memory.take(1);
    const second = memory.take(1);
    memory.giveBack(first);
    memory.giveBack(second);
    expect(memory.take(1).buffer).toBe(first.buffer);
    expect(memory.take(1).buffer).not.toBe(second.buffer);
  });

  test('keeps no block of an unusual size', () => {
    const memory = new BlockMemory(64, 2);
    const large = memory.take(65);
    expect(large).toHaveLength(65);
    memory.giveBack(large);
    expect(memory.take(65).buffer).not.toBe(large.buffer);
    expect(memory.take(1).buffer).not.toBe(large.buffer);
  });
});
