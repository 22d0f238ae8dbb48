// The symbols and decimals of assets, if the mirror knows any (ASSETS_FILE). Amounts of
// other assets are shown in their smallest unit.
import {
  amountDecimal,
  amountHeading,
  formatAmount,
} from '../shared/amounts.js';
import { ask, once } from './ask.js';
import { shortId } from './format.js';

// The mirror reads its file only when it starts.
const readAssets = once(async () => {
  const { assets } = await ask('console/assets');
  return new Map(assets.map((asset) => [asset.id, asset]));
});

/**
 * Returns the assets by id. If they cannot be read, the map is empty: amounts are then
 * shown in the smallest unit, as the headings say, and the next view tries again.
 */
export function assetUnits() {
  return readAssets().catch(() => new Map());
}

/** Returns the symbol, or the beginning and end of the id. */
export function assetName(units, assetId) {
  return units.get(assetId)?.symbol ?? shortId(assetId);
}

export function assetAmount(units, assetId, digits) {
  return formatAmount(String(digits), units.get(assetId));
}

/**
 * Returns how to show amounts of one asset: `text` as the reader sees them, `decimal` to
 * place them on an axis, and `heading` above them.
 */
export function amountsOf(units, assetId) {
  return {
    text: (digits) => assetAmount(units, assetId, digits),
    decimal: (digits) => amountDecimal(String(digits), units.get(assetId)),
    heading: (name) => headingFor(name, units, [assetId]),
  };
}

/** Returns a heading that says whether the amounts of these assets are in smallest units. */
export function headingFor(name, units, assetIds) {
  const known = assetIds.filter((id) => units.has(id)).length;
  return amountHeading(name, { known, unknown: assetIds.length - known });
}
