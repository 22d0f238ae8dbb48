/** Finds the known name that a mistyped one was probably meant to be. */

/** Maximum number of typos in a name, whatever its length. */
const SLIPS_MAX = 2;

/** Returns the known name closest to a mistyped one; undefined if none is close. */
export function findNear(
  name: string,
  known: readonly string[],
): string | undefined {
  const typed = name.toLowerCase();
  let nearest: string | undefined;
  // At most half of the letters may differ: `xy` is not a typo for `id`.
  let slipsMax = Math.min(SLIPS_MAX, Math.floor(typed.length / 2));
  for (const one of known) {
    if (Math.abs(one.length - typed.length) > slipsMax) continue;
    const slips = distance(typed, one.toLowerCase());
    if (slips > slipsMax) continue;
    if (nearest === undefined || slips < slipsMax) nearest = one;
    slipsMax = slips;
  }
  return nearest;
}

/**
 * Returns the known name closest to a mistyped one, or else the first name that contains
 * its stem: `entry` is not close to `ledger_entries`, but probably means it.
 */
export function findMeant(
  name: string,
  known: readonly string[],
): string | undefined {
  const stem = name.toLowerCase().replace(/(?:ies|y|s)$/, '');
  const isLike = (one: string): boolean =>
    stem.length > SLIPS_MAX && one.toLowerCase().includes(stem);
  return findNear(name, known) ?? known.find(isLike);
}

/** Returns `; did you mean …?` if a name was found, otherwise an empty string. */
export function didYouMean(name: string | undefined): string {
  return name === undefined ? '' : `; did you mean ${name}?`;
}

/**
 * Counts the letters that are changed, added, missing or swapped with their neighbour.
 */
function distance(a: string, b: string): number {
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
