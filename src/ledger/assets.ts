/**
 * Reads the file of assets: how many decimals each asset has, and its symbol. The file
 * makes amounts readable; the stored data never depends on it.
 */
import { isHexId } from './ids.ts';

export interface Asset {
  /** Lower-case hex. */
  readonly id: string;
  readonly symbol: string;
  /** How many digits of an amount come after the decimal point. */
  readonly decimals: number;
}

/**
 * Maximum number of decimals of an amount: the number of digits that every engine's
 * DECIMAL supports.
 */
const DECIMALS_MAX = 38;
const SYMBOL_CHARACTERS_MAX = 32;
/** Printable, because symbols are shown in terminals. */
const SYMBOL = /^[^\p{C}\p{Z}](?:[^\p{C}\p{Zl}\p{Zp}]*[^\p{C}\p{Z}])?$/u;
const FORM =
  'give an array such as [{"id": "<64 hex digits>", "symbol": "USDT", "decimals": 6}]';

const FIELDS = ['id', 'symbol', 'decimals'];

/**
 * Parses the text of the file.
 * @returns the assets in the order of the file, or what is wrong and what to do about it
 */
export function parseAssets(
  text: string,
): { readonly assets: readonly Asset[] } | { readonly problem: string } {
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch {
    return { problem: `it is not JSON; ${FORM}` };
  }
  if (!Array.isArray(given)) return { problem: `it is not an array; ${FORM}` };
  const assets = new Map<string, Asset>();
  for (const [index, entry] of given.entries()) {
    const read = readEntry(entry);
    const place = `entry ${index + 1}`;
    if (typeof read === 'string') return { problem: `${place} ${read}` };
    if (assets.has(read.id))
      return {
        problem: `${place} has the id ${read.id} of an earlier one; remove one of them`,
      };
    assets.set(read.id, read);
  }
  return { assets: [...assets.values()] };
}

/** Returns the asset, or what is wrong with the entry. */
function readEntry(entry: unknown): Asset | string {
  if (typeof entry !== 'object' || entry === null || Array.isArray(entry))
    return `is not an object; ${FORM}`;
  const unknown = Object.keys(entry).find((name) => !FIELDS.includes(name));
  if (unknown !== undefined)
    return (
      `has the unknown field ${JSON.stringify(unknown)}; remove it: an entry has ` +
      'id, symbol and decimals'
    );
  const { id, symbol, decimals } = entry as Readonly<Record<string, unknown>>;
  const canonical = typeof id === 'string' ? id.toLowerCase() : '';
  if (!isHexId(canonical))
    return 'has no id of 64 hex digits; give the id of the asset';
  if (
    typeof symbol !== 'string' ||
    symbol.length > SYMBOL_CHARACTERS_MAX ||
    !SYMBOL.test(symbol)
  )
    return (
      `has no symbol; give 1 to ${SYMBOL_CHARACTERS_MAX} printable characters ` +
      'that neither begin nor end with a space'
    );
  if (
    typeof decimals !== 'number' ||
    !Number.isInteger(decimals) ||
    decimals < 0 ||
    decimals > DECIMALS_MAX
  )
    return `has no decimals from 0 to ${DECIMALS_MAX}; give a whole number in that range`;
  return { id: canonical, symbol, decimals };
}

/**
 * Returns the units by asset id, in the form in which the views of amounts look them up.
 */
export function unitsById(
  assets: readonly Asset[],
): ReadonlyMap<string, Asset> {
  return new Map(assets.map((asset) => [asset.id, asset]));
}
