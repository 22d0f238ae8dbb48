/**
 * Decides which figures of a result may share a chart. Amounts are in the smallest unit
 * of their asset, so amounts of two assets can be neither added nor compared. Both the
 * console and `query --chart` follow this.
 */

/** Columns that name an asset, and thereby the unit of the amounts in their row. */
const UNIT = /(?:^|_)(?:asset|symbol)(?:_id)?$/i;
/**
 * Counts of rows, which have no unit. Any other figure is treated as an amount. That
 * includes a count of parties: it cannot be added up across assets either, because one
 * party may hold several.
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
