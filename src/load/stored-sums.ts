/** Sums of rows as the warehouse holds them, recomputed outside of it. */
import { canonicalText, extraFromJson, monthOf } from '../ledger/canonical.ts';
import { hashText, RowDigest } from '../ledger/digest.ts';
import type { MonthSum } from './ports.ts';

const VALUES = '\u001f';
const NULL = '\\N';
const UNESCAPED: Readonly<Record<string, string>> = {
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};

/** Sums by segment and month of lines that come in chunks cut anywhere. */
export class StoredSums {
  readonly #sums = new Map<string, Map<string, RowDigest>>();
  #partial = '';

  /** @param chunk COPY text of complete UTF-8 characters: segment id, extra, canonical values */
  push(chunk: string): void {
    const lines = (this.#partial + chunk).split('\n');
    this.#partial = lines.pop() ?? '';
    for (const line of lines) this.#add(line);
  }

  /** By month, in order; empty where the segment has no row. */
  of(segmentId: bigint): readonly MonthSum[] {
    const months = this.#sums.get(segmentId.toString()) ?? new Map<string, RowDigest>();
    return [...months]
      .map(([month, sum]) => ({ month, rows: BigInt(sum.rows), valuesDigest: sum.hex() }))
      .toSorted((a, b) => (a.month < b.month ? -1 : 1));
  }

  #add(line: string): void {
    const [segmentId = '', extra = NULL, escaped = ''] = line.split('\t');
    const text = escaped.includes('\\') ? unescape(escaped) : escaped;
    let months = this.#sums.get(segmentId);
    if (months === undefined) this.#sums.set(segmentId, (months = new Map()));
    const month = monthOf([text]);
    let sum = months.get(month);
    if (sum === undefined) months.set(month, (sum = new RowDigest()));
    sum.add(hashText(extra === NULL ? text : withExtra(text, extra)));
  }
}

/** The sum of all months; the additive digest makes it the segment's. */
export function addUp(months: readonly MonthSum[]): { readonly rows: bigint; readonly valuesDigest: string } {
  const total = new RowDigest();
  for (const month of months) total.merge(RowDigest.fromHex(month.valuesDigest, Number(month.rows)));
  return { rows: BigInt(total.rows), valuesDigest: total.hex() };
}

function withExtra(text: string, escaped: string): string {
  return canonicalText(text.split(VALUES), extraFromJson(unescape(escaped)));
}

function unescape(escaped: string): string {
  return escaped.replaceAll(/\\(.)/g, (_, character: string) => UNESCAPED[character] ?? character);
}
