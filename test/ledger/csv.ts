/**
 * Headers and rows as the two families of releases write them, and cuts of their bytes.
 */

export const HEADER_12 =
  'vega_time,quantity,transfer_type,asset_id,account_from_market_id,account_from_party_id,account_from_account_type,account_to_market_id,account_to_party_id,account_to_account_type,account_from_balance,account_to_balance';
export const HEADER_13 =
  'vega_time,quantity,effect,transfer_type,asset_id,account_from_market_id,account_from_party_id,account_from_account_type,account_from_balance,account_to_market_id,account_to_party_id,account_to_account_type,account_to_balance';

/** All that a row says; tests fill in what they do not care for. */
export interface EntryLine {
  readonly time: string;
  readonly quantity: bigint | string;
  readonly type: string;
  readonly from: string;
  readonly to: string;
  readonly asset: string;
  /** The market of the sender's account; empty if there is none. */
  readonly market: string;
  readonly balances?: readonly [from: string, to: string];
}

const BALANCES = ['5', '12345678901234567890123'] as const;

/** 0.71.1 to 0.71.5: bytes in hex, account types as numbers. */
export function writeRow12(line: EntryLine): string {
  const { time, quantity, type, asset, market, balances = BALANCES } = line;
  const [from, to] = [line.from, line.to].map((party) =>
    party === 'network' ? '\\x03' : `\\x${party}`,
  );
  return `${time},${quantity},TRANSFER_TYPE_${type},\\x${asset},\\x${market},${from},3,\\x,${to},4,${balances.join(',')}`;
}

/** 0.71.6 and later: words and plain hex, another order, `effect`. */
export function writeRow13(line: EntryLine, effect: string): string {
  const {
    time,
    quantity,
    type,
    asset,
    market,
    from,
    to,
    balances = BALANCES,
  } = line;
  const sender = `${market === '' ? '""' : market},${from},MARGIN,${balances[0]}`;
  return `${time},${quantity},${effect},TRANSFER_TYPE_${type},${asset},${sender},"",${to},GENERAL,${balances[1]}`;
}

/** `bytes` in pieces that end at the given places. */
export function cutAt(bytes: Buffer, places: readonly number[]): Buffer[] {
  const borders = [
    0,
    ...places.map((place) => place % (bytes.length + 1)),
    bytes.length,
  ].toSorted((a, b) => a - b);
  return borders
    .slice(1)
    .map((border, index) => bytes.subarray(borders[index], border));
}
