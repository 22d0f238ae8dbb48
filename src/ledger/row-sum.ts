/** A digest together with what makes it comparable: the form of the rows that were summed. */
import { RowDigest, rowForm } from './digest.ts';
import { formatZone } from './vega-time.ts';

export class RowSum {
  readonly digest = new RowDigest();
  readonly #zones = new Set<number>();
  #lastZone = Number.NaN;

  /** @param zoneSeconds the offset that the row's time is written in */
  add(rowHash: string, zoneSeconds: number): void {
    this.digest.add(rowHash);
    if (zoneSeconds === this.#lastZone) return;
    this.#lastZone = zoneSeconds;
    this.#zones.add(zoneSeconds);
  }

  get rows(): number {
    return this.digest.rows;
  }

  form(headerLine: Buffer): string {
    return rowForm(headerLine, [...this.#zones].map(formatZone));
  }

  reset(): void {
    this.digest.reset();
    this.#zones.clear();
    this.#lastZone = Number.NaN;
  }
}
