/**
 * Finds the rows of a block and what an export asks of each, by a WebAssembly module that reads sixteen bytes
 * at a time (`kernel/row-scan.ts`): four times as fast as doing so in JavaScript. It says of a row that is not
 * written as releases write them that it is odd; then `RowFilter` decides.
 */
import { readFileSync } from 'node:fs';
import type { Layout } from '../ledger/header.ts';
import type { ExportUnit } from './ports.ts';

/** As the module lays out its memory. */
const ASSET_AT = 64;
const RECORDS_AT = 1024;
const RECORD_BYTES = 24;
const BLOCK_AT = 128 * 1024;
const IS_FROM = 1;
const IS_TO = 2;
const IS_ASSET = 4;
const IS_ODD = 8;
const ID_CHARACTERS = 64;
/** The module reads whole vectors, a little beyond the block. */
const SLACK_BYTES = 16;

/** Node's types leave it out. */
declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: unknown };
};

interface Kernel {
  readonly memory: { readonly buffer: ArrayBuffer };
  configure(count: number, time: number, from: number, to: number, asset: number): void;
  scan(start: number, end: number): number;
}

/** One for each thread: what it is asked for is set anew for each block. */
let kernel: Kernel | undefined;

function openKernel(): Kernel {
  const module = new WebAssembly.Module(readFileSync(new URL('row-scan.wasm', import.meta.url)));
  return new WebAssembly.Instance(module).exports as Kernel;
}

/** The rows of one block, one after the other. Only one is in use at a time. */
export class RowScan {
  /** Of the row in hand, in the block; the end without the line end. */
  start = 0;
  end = 0;
  next = 0;
  /** Nothing below is known of it. */
  isOdd = false;
  /** Counted from 1970; the time is written in UTC. */
  second = 0;
  isFrom = false;
  isTo = false;
  /** Of the asset that was asked for; true where none was. */
  isAsset = false;
  readonly #kernel: Kernel;
  readonly #words: Int32Array;
  readonly #seconds: Float64Array;
  readonly #bytes: number;
  readonly #anyAsset: boolean;
  #records = 0;
  #record = 0;

  private constructor(opened: Kernel, unit: ExportUnit, { columns, index, sides }: Layout, block: Buffer) {
    this.#kernel = opened;
    const { buffer } = opened.memory;
    this.#words = new Int32Array(buffer);
    this.#seconds = new Float64Array(buffer);
    this.#bytes = block.length;
    const { partyId, assetId } = unit;
    this.#anyAsset = assetId === undefined;
    const memory = Buffer.from(buffer);
    memory.write(partyId, 'latin1');
    memory.write(assetId ?? '', ASSET_AT, 'latin1');
    block.copy(memory, BLOCK_AT);
    opened.configure(
      columns.length,
      index.vega_time,
      index.account_from_party_id,
      sides === 'both' ? index.account_to_party_id : -1,
      this.#anyAsset ? -1 : index.asset_id,
    );
  }

  /** @returns undefined where the module cannot help: for built-in assets, which are words, and huge rows */
  static open(unit: ExportUnit, layout: Layout, block: Buffer): RowScan | undefined {
    kernel ??= openKernel();
    const { partyId, assetId = partyId } = unit;
    if (partyId.length !== ID_CHARACTERS || assetId.length !== ID_CHARACTERS) return undefined;
    if (block.length > kernel.memory.buffer.byteLength - BLOCK_AT - SLACK_BYTES) return undefined;
    return new RowScan(kernel, unit, layout, block);
  }

  /** @returns false behind the last row */
  advance(): boolean {
    if (this.#record === this.#records) {
      if (this.next >= this.#bytes) return false;
      this.#records = this.#kernel.scan(this.next, this.#bytes);
      this.#record = 0;
      // Blank lines alone are left.
      if (this.#records === 0) return false;
    }
    const at = RECORDS_AT + this.#record * RECORD_BYTES;
    const words = this.#words;
    this.#record += 1;
    this.start = words[at >> 2] ?? 0;
    this.end = words[(at >> 2) + 1] ?? 0;
    this.next = words[(at >> 2) + 2] ?? 0;
    const flags = words[(at >> 2) + 3] ?? 0;
    this.second = this.#seconds[(at >> 3) + 2] ?? 0;
    this.isOdd = (flags & IS_ODD) !== 0;
    this.isFrom = (flags & IS_FROM) !== 0;
    this.isTo = (flags & IS_TO) !== 0;
    this.isAsset = this.#anyAsset || (flags & IS_ASSET) !== 0;
    return true;
  }
}
