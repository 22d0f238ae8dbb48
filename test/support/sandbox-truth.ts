/**
 * The truth about the sandbox network, computed from the movements and not from what was
 * served. Tests compare it with the copy that a mirror made through the network's
 * interface.
 */
import { createHash } from 'node:crypto';
import { DAY_MICROS, formatInstant, type Micros } from '../../src/time/time.ts';
import {
  ACCOUNT_TYPE,
  ASSET_UNITS,
  NETWORK,
  NO_MARKET,
  type Account,
  type Movement,
} from '../../src/sandbox/network/ledger.ts';
import type {
  CheckpointRow,
  Network,
} from '../../src/sandbox/network/network.ts';
import { KIND } from '../../src/sandbox/network/seeded.ts';
import { openRowWriter } from '../../src/sandbox/release.ts';

/** Selects entries by time, `[from, to)`, and by asset; without `assetId`, all assets. */
export interface TruthWindow {
  from?: Micros;
  to?: Micros;
  assetId?: string;
}

export interface TrueSum {
  assetId: string;
  /** `TRANSFER_TYPE_…` */
  type: string;
  /** `2023-05-01`, UTC */
  day: string;
  entries: number;
  quantity: bigint;
}

export interface PartyTruth {
  /** The number of entries in the export. */
  entries: number;
  /**
   * Sum, modulo 2^256, of the SHA-256 of each CSV row without its line end; 64 hex
   * digits.
   */
  digest: string;
  sums: TrueSum[];
}

export interface TrueBalance {
  assetId: string;
  /** Undefined if the account belongs to no market. */
  marketId: string | undefined;
  accountType: number;
  balance: bigint;
}

const DIGEST_MASK = (1n << 256n) - 1n;

export class Truth {
  readonly #network: Network;

  constructor(network: Network) {
    this.#network = network;
  }

  /** Returns the newest block's height, and the instant that the network has reached. */
  head(): { height: bigint; time: Micros } {
    const { block, time } = this.#network.head();
    return { height: BigInt(block), time };
  }

  /** Returns the number of parties, without `network`. */
  partyCount(): number {
    return this.#network.parties.countBy(this.#network.head().block);
  }

  /** Yields every party except `network` in the list's order, oldest first. */
  *parties(): Generator<{ id: string; firstSeen: Micros }> {
    for (const { id, firstSeen } of this.#network.parties.rows(
      0,
      this.partyCount(),
    ))
      yield { id, firstSeen };
  }

  /**
   * Yields every checkpoint that is served, oldest first, each as often as the list
   * contains it.
   */
  *checkpoints(): Generator<CheckpointRow> {
    const { from, to } = this.#network.checkpoints.visible(
      this.#network.head(),
    );
    for (let position = from; position < to; position += 1)
      yield this.#network.checkpoints.row(position);
  }

  /** Returns the assets of the network. */
  assetIds(): string[] {
    return ASSET_UNITS.map((_, asset) =>
      this.#network.ids.id(KIND.asset, asset),
    );
  }

  /**
   * Yields the CSV rows of a party, without line ends, in the order in which they
   * happened.
   */
  *rows(partyId: string, window: TruthWindow = {}): Generator<string> {
    const write = this.#writerFor(partyId);
    for (const movement of this.#exported(partyId, window))
      yield write(movement).slice(0, -1);
  }

  /** Returns the count, the digest and the sums of a party's export. */
  party(partyId: string, window: TruthWindow = {}): PartyTruth {
    const write = this.#writerFor(partyId);
    const sums = new Map<string, TrueSum>();
    let entries = 0;
    let digest = 0n;
    for (const movement of this.#exported(partyId, window)) {
      entries += 1;
      const hash = createHash('sha256')
        .update(write(movement).slice(0, -1))
        .digest('hex');
      digest = (digest + BigInt(`0x${hash}`)) & DIGEST_MASK;
      this.#add(sums, movement);
    }
    return {
      entries,
      digest: digest.toString(16).padStart(64, '0'),
      sums: [...sums.values()],
    };
  }

  /**
   * Returns a party's balances after everything that has happened, replayed from its
   * beginning.
   */
  balances(partyId: string): TrueBalance[] {
    const balances = new Map<string, TrueBalance>();
    const party = this.#indexOf(partyId);
    if (party === undefined) return [];
    const post = (account: Account, asset: number, amount: bigint): void => {
      if (account.owner !== party) return;
      const key = `${asset} ${account.market} ${account.type}`;
      const balance = balances.get(key) ?? this.#emptyBalance(account, asset);
      balance.balance += amount;
      balances.set(key, balance);
    };
    const blocks = { from: 1, to: this.#network.head().block };
    for (const { from, to, asset, quantity } of this.#network.movementsOfPair(
      party,
      blocks,
    )) {
      post(from, asset, -quantity);
      post(to, asset, quantity);
    }
    return [...balances.values()];
  }

  #writerFor(partyId: string): (movement: Movement) => string {
    return openRowWriter(this.#network, this.#indexOf(partyId) ?? NETWORK);
  }

  *#exported(partyId: string, window: TruthWindow): Generator<Movement> {
    const party = this.#indexOf(partyId);
    if (party === undefined) return;
    const asset =
      window.assetId === undefined
        ? undefined
        : this.#network.ids.indexOf(KIND.asset, window.assetId);
    if (window.assetId !== undefined && asset === undefined) return;
    const { chain } = this.#network;
    const { block: head } = this.#network.head();
    const blocks = {
      from: window.from === undefined ? 1 : chain.firstFrom(window.from),
      to:
        window.to === undefined
          ? head
          : Math.min(head, chain.firstFrom(window.to) - 1),
    };
    for (const movement of this.#network.movementsOfPair(party, blocks)) {
      // Release 0.71.4 exports only outgoing entries; later releases also export incoming
      // ones.
      const isMeant =
        this.#network.settings.release !== '0.71.4' &&
        movement.to.owner === party;
      if (movement.from.owner !== party && !isMeant) continue;
      if (asset === undefined || movement.asset === asset) yield movement;
    }
  }

  #add(sums: Map<string, TrueSum>, movement: Movement): void {
    const time = this.#network.chain.timeOf(movement.block);
    const key = `${movement.asset} ${movement.type} ${time / DAY_MICROS}`;
    const sum = sums.get(key) ?? {
      assetId: this.#network.ids.id(KIND.asset, movement.asset),
      type: `TRANSFER_TYPE_${movement.type}`,
      day: formatInstant(time).slice(0, 10),
      entries: 0,
      quantity: 0n,
    };
    sum.entries += 1;
    sum.quantity += movement.quantity;
    sums.set(key, sum);
  }

  #emptyBalance(account: Account, asset: number): TrueBalance {
    const { ids } = this.#network;
    return {
      assetId: ids.id(KIND.asset, asset),
      marketId:
        account.market === NO_MARKET
          ? undefined
          : ids.id(KIND.market, account.market),
      accountType: ACCOUNT_TYPE[account.type],
      balance: 0n,
    };
  }

  #indexOf(partyId: string): number | undefined {
    return this.#network.parties.indexOf(partyId, this.#network.head().block);
  }
}
