/** Small CSV material for the tests of readers. */

export const HEADER_12 =
  'vega_time,quantity,transfer_type,asset_id,account_from_market_id,account_from_party_id,account_from_account_type,account_to_market_id,account_to_party_id,account_to_account_type,account_from_balance,account_to_balance';
export const HEADER_13 =
  'vega_time,quantity,effect,transfer_type,asset_id,account_from_market_id,account_from_party_id,account_from_account_type,account_from_balance,account_to_market_id,account_to_party_id,account_to_account_type,account_to_balance';

/** `bytes` in pieces that end at the given places. */
export function cutAt(bytes: Buffer, places: readonly number[]): Buffer[] {
  const borders = [0, ...places.map((place) => place % (bytes.length + 1)), bytes.length].toSorted(
    (a, b) => a - b,
  );
  return borders.slice(1).map((border, index) => bytes.subarray(borders[index], border));
}
