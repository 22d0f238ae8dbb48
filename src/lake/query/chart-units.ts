/**
 * Decides which figures of a result may share a chart. Amounts are in the smallest unit of
 * their asset, so amounts of two assets can be neither added nor compared. The chart of
 * the console and that of `query --chart` both follow this.
 */

/** Columns that name an asset, and so the unit of the amounts in their row. */
const UNIT = /(?:^|_)(?:asset|symbol)(?:_id)?$/i;
/**
 * Counts of rows, which have no unit. Any other figure counts as an amount: a count of
 * parties cannot be added over assets either, because one party holds several.
 */
const COUNT_OF_ROWS =
  /^(?:entries|payments|rows|count|count_star\(\)|count\((?!distinct\b).*\))$/i;

/**
 * Returns the columns whose values together name the unit of a figure. Figures with
 * different units must not be drawn on one axis. Empty if the figure has no unit.
 */
export function unitColumns(
  names: readonly string[],
  figure: string,
): readonly string[] {
  if (COUNT_OF_ROWS.test(figure)) return [];
  return names.filter((name) => name !== figure && UNIT.test(name));
}
