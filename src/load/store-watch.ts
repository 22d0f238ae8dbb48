/** Sees that the database went back to a backup, without listing the store's records for each export. */
import { catchUpWithStore, type RebuildDeps, type RebuildResult } from './rebuild.ts';

export class StoreWatch {
  readonly #deps: RebuildDeps;
  /** How far the database was when it was compared with the store last. */
  #compared: { readonly warehouseId: string; readonly seq: bigint; readonly atMs: number } | undefined;

  constructor(deps: RebuildDeps) {
    this.#deps = deps;
  }

  /** @param maxAgeMs a comparison that is no older will do, where the database has not gone back since */
  async catchUp(signal: AbortSignal, maxAgeMs: number): Promise<RebuildResult | undefined> {
    const atMs = performance.now();
    const lineage = await this.#deps.repository.lineage();
    const { warehouseId, seq, isRebuilding } = lineage;
    const last = this.#compared;
    const isAhead = last !== undefined && last.warehouseId === warehouseId && last.seq <= seq;
    if (isAhead && !isRebuilding && atMs - last.atMs < maxAgeMs) {
      this.#compared = { ...last, seq };
      return undefined;
    }
    const found = await catchUpWithStore(this.#deps, signal, lineage);
    this.#compared = found === undefined ? { warehouseId, seq, atMs } : undefined;
    return found;
  }
}
