/** A digest together with what makes it comparable: the form of the rows that were summed. */
import { RowDigest, rowForm } from './digest.ts';
import { formatZone } from './vega-time.ts';

/** A sum as plain data, as it passes between threads. */
export interface PlainRowSum {
  readonly rows: number;
  /** 64 hex digits. */
  readonly digest: string;
  readonly zones: readonly number[];
}

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

  /** Adds all rows of another sum. */
  merge({ digest, rows, zones }: PlainRowSum): void {
    this.digest.merge(RowDigest.fromHex(digest, rows));
    for (const zone of zones) this.#zones.add(zone);
  }

  get rows(): number {
    return this.digest.rows;
  }

  plain(): PlainRowSum {
    return { rows: this.rows, digest: this.digest.hex(), zones: [...this.#zones] };
  }

  /** @param header line, with its line end or without */
  form(header: Buffer): string {
    const line = Buffer.from(header.toString('latin1').replace(/\r?\n$/, ''), 'latin1');
    return rowForm(line, [...this.#zones].map(formatZone));
  }
}
