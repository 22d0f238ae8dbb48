// @ts-check
/**
 * Shows amounts in whole units of their asset: `1250000` of an asset with six decimals is
 * `1.25 USDT`. The data is always in the smallest unit. Only what people read is
 * converted, and headings say which of the two units a column shows.
 *
 * An amount is decimal text. Moving its decimal point is exact for any length, and
 * nothing here converts it to a JavaScript number. The browser loads this file too.
 */
import { groupDigits } from './format.js';

/**
 * How an asset's amounts are written: its symbol, and how many digits follow the decimal
 * point.
 * @typedef {{ readonly symbol: string, readonly decimals: number }} AssetUnit
 */

/**
 * The units of the assets whose decimals are known, by asset id.
 * @typedef {ReadonlyMap<string, AssetUnit>} AssetUnits
 */

const SMALLEST = 'smallest unit';

/**
 * Names of the columns that hold amounts, in the lake, the warehouse and the ready
 * questions. A column with any other name is left alone: dividing a count by an asset's
 * decimals would make it wrong, while an amount in the smallest unit is only harder to
 * read.
 */
const AMOUNT =
  '(?:\\w+\\.)?(?:total_|sum_|min_|max_|account_from_|account_to_)?' +
  '(?:quantity|balance|paid|held|sent|received|moved_within|change|lowest|highest)' +
  '(?:_text)?';
const AMOUNT_NAME = new RegExp(
  `^(?:${AMOUNT}|(?:exact_sum|sum|min|max|any_value)\\(${AMOUNT}(?:, ?${AMOUNT})?\\))$`,
  'i',
);
const ASSET_NAME = /(?:^|_)asset(?:_id)?$/i;

/** Several candidates for a balance are written as `100 or 120`. */
const WHOLE_AMOUNTS = /^-?\d+(?: or -?\d+)*$/;

/**
 * Moves the decimal point, exactly: `-1250000` with six decimals is `-1.25`. Zeros at the
 * end are dropped.
 * @param {string} digits a whole number
 * @param {number} decimals
 * @returns {string}
 */
export function movePoint(digits, decimals) {
  const sign = digits.startsWith('-') ? '-' : '';
  const padded = digits.slice(sign.length).padStart(decimals + 1, '0');
  const point = padded.length - decimals;
  const fraction = padded.slice(point).replace(/0+$/, '');
  return `${sign}${padded.slice(0, point)}${fraction === '' ? '' : `.${fraction}`}`;
}

/**
 * Formats an amount of an asset: `1,234.5 USDT`. Without a unit, the amount stays in the
 * smallest unit, with its digits grouped. Text that is not a whole number stays as it is.
 * @param {string} text
 * @param {AssetUnit | undefined} unit
 * @returns {string}
 */
export function formatAmount(text, unit) {
  if (!WHOLE_AMOUNTS.test(text)) return text;
  const amounts = text
    .split(' or ')
    .map((digits) =>
      groupDigits(
        unit === undefined ? digits : movePoint(digits, unit.decimals),
      ),
    );
  return `${amounts.join(' or ')}${unit === undefined ? '' : ` ${unit.symbol}`}`;
}

/**
 * Returns an amount in whole units as decimal text, without its symbol.
 * @param {string} text
 * @param {AssetUnit | undefined} unit
 * @returns {string}
 */
export function amountDecimal(text, unit) {
  return unit === undefined || !/^-?\d+$/.test(text)
    ? text
    : movePoint(text, unit.decimals);
}

/**
 * Returns a heading that says so if its column has amounts in the smallest unit.
 * @param {string} name
 * @param {{ readonly known: number, readonly unknown: number }} assets how many of the
 *   values are in whole units of a known asset, and how many are not
 * @returns {string}
 */
export function amountHeading(name, { known, unknown }) {
  if (known === 0) return `${name} (${SMALLEST})`;
  return unknown === 0 ? name : `${name} (${SMALLEST} if no symbol)`;
}

/**
 * A column of amounts. `format` shows the amount of a row; `decimal` returns the same
 * value as decimal text, for example to place it on an axis. Both return undefined if the
 * row has none.
 * @typedef {{
 *   readonly heading: string,
 *   readonly format: (row: readonly unknown[]) => string | undefined,
 *   readonly decimal: (row: readonly unknown[]) => string | undefined,
 * }} AmountColumn
 */

/**
 * Finds a result's columns of amounts, and says how to show them. If one column names the
 * asset, amounts of known assets are shown in the asset's units. If two columns name
 * assets, amounts stay in the smallest unit, because they could belong to either asset.
 * @param {readonly string[]} names
 * @param {readonly (readonly unknown[])[]} rows the rows that the headings describe;
 *   later rows may be shown too
 * @param {AssetUnits} units
 * @param {(index: number) => boolean} isExact whether a column's values are whole numbers
 *   of any length, or their text. Other columns are left alone, because the query may
 *   have converted a quotient to other units already
 * @returns {ReadonlyMap<number, AmountColumn>} by the index of the column
 */
export function findAmounts(names, rows, units, isExact) {
  const assets = names.flatMap((name, index) =>
    ASSET_NAME.test(name) ? [index] : [],
  );
  const asset = assets.length === 1 ? assets[0] : undefined;
  /** @param {readonly unknown[]} row */
  const unitOf = (row) =>
    asset === undefined ? undefined : units.get(textOf(row, asset) ?? '');
  /** @type {(index: number) => AmountColumn} */
  const describe = (index) => {
    const given = rows.filter((row) => textOf(row, index) !== undefined);
    const known = given.filter((row) => unitOf(row) !== undefined).length;
    const unknown = given.length - known;
    const isPlain = known > 0 && unknown === 0;
    return {
      heading: amountHeading(names[index] ?? '', { known, unknown }),
      format: (row) => {
        const text = textOf(row, index);
        if (text === undefined) return undefined;
        const unit = unitOf(row);
        const shown = formatAmount(text, unit);
        // The heading promises units, and was written before this row was known.
        return isPlain && unit === undefined ? `${shown} (${SMALLEST})` : shown;
      },
      decimal: (row) => {
        const text = textOf(row, index);
        return text === undefined
          ? undefined
          : amountDecimal(text, unitOf(row));
      },
    };
  };
  return new Map(
    names.flatMap((name, index) =>
      AMOUNT_NAME.test(name) && isExact(index)
        ? [[index, describe(index)]]
        : [],
    ),
  );
}

/**
 * @param {readonly unknown[]} row
 * @param {number} index
 * @returns {string | undefined} undefined if the row has no amount
 */
function textOf(row, index) {
  const value = row[index];
  // Engines have types of their own for long numbers, whose text has every digit.
  return value === null || value === undefined
    ? undefined
    : /** @type {{ toString(): string }} */ (value).toString();
}
