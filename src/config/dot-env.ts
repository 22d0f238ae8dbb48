/** How other programs write `.env` and the environment, and where a reading would differ from theirs. */

const UTF16_MARKS = ['fffe', 'feff'];
/** A name, and a value without quotes in which a # follows something other than a blank. */
const UNQUOTED_HASH =
  /^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=[ \t]*(?!["'`])[^\s#][^#\n]*?(?<=\S)#/gm;
const NEAR_MAX = 2;

/** @returns the text without a byte order mark, or undefined if it is UTF-16 */
export function decodeText(bytes: Buffer): string | undefined {
  const isUtf16 = UTF16_MARKS.includes(bytes.subarray(0, 2).toString('hex'));
  if (isUtf16 || bytes.includes(0)) return undefined;
  return bytes.toString('utf8').replace(/^\uFEFF/, '');
}

/**
 * Names whose value is cut here and in `node --env-file` at a #, while Compose and systemd take the
 * whole of it.
 */
export function findCutValues(text: string): readonly string[] {
  return [...text.matchAll(UNQUOTED_HASH)].map(([, name = '']) => name);
}

/** Kubernetes announces a service `api` as API_PORT=tcp://10.0.0.1:80 in every pod. */
export function isServiceLink(name: string, value: string): boolean {
  return name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value);
}

/** @returns the known name that was probably meant, if one is near */
export function findNear(
  name: string,
  known: readonly string[],
): string | undefined {
  return known.find((one) => distance(name, one) <= NEAR_MAX);
}

/** Letters that are changed, added, left out, or exchanged with their neighbour. */
function distance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > NEAR_MAX) return Infinity;
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const above = rows[i - 1] ?? [];
      const isSame = a[i - 1] === b[j - 1];
      const steps = [
        (above[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (above[j - 1] ?? 0) + (isSame ? 0 : 1),
      ];
      if (a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        steps.push((rows[i - 2]?.[j - 2] ?? 0) + 1);
      row.push(Math.min(...steps));
    }
    rows.push(row);
  }
  return rows.at(-1)?.at(-1) ?? 0;
}
