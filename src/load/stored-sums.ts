/** Sums of rows as the warehouse holds them, recomputed outside of it. */
import { canonicalText, extraFromJson } from '../ledger/canonical.ts';
import { hashText, RowDigest } from '../ledger/digest.ts';

const NULL = '\\N';
const UNESCAPED: Readonly<Record<string, string>> = {
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};

/**
 * By segment id.
 * @param chunks COPY text, cut anywhere: segment id, extra, canonical values
 */
export async function sumStoredRows(chunks: AsyncIterable<Buffer>): Promise<ReadonlyMap<string, RowDigest>> {
  const sums = new Map<string, RowDigest>();
  const decoder = new TextDecoder();
  let partial = '';
  for await (const chunk of chunks) {
    const lines = (partial + decoder.decode(chunk, { stream: true })).split('\n');
    partial = lines.pop() ?? '';
    for (const line of lines) {
      const [segmentId = '', extra = NULL, values = ''] = line.split('\t');
      const sum = sums.get(segmentId) ?? new RowDigest();
      sums.set(segmentId, sum);
      const known = extra === NULL ? [] : extraFromJson(unescape(extra));
      sum.add(hashText(canonicalText([unescape(values)], known)));
    }
  }
  return sums;
}

function unescape(escaped: string): string {
  if (!escaped.includes('\\')) return escaped;
  return escaped.replaceAll(/\\(.)/g, (_, character: string) => UNESCAPED[character] ?? character);
}
