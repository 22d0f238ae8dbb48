/**
 * Decodes single CSV values from any release of the service to the format that the
 * mirror stores. A decoder never guesses: it returns undefined for a string that no
 * known release writes. Changing what a string decodes to also changes the digests of
 * rows that are already loaded.
 */
import { canonicalId, canonicalPartyId } from './ids.ts';

const HEX_BYTES = /^(?:[0-9a-f]{2}){2,64}$/;
const UNSIGNED = /^[0-9]+$/;
const TYPE_NAME = /^[A-Z][A-Z0-9_]*$/;
const TYPE_NAME_CHARACTERS_MAX = 100;
/** Maximum number of digits of the service's own numeric type. */
const INTEGER_DIGITS_MAX = 1000;

/** The words that one-byte ids stand for, in releases that write ids as bytes. */
const WORD_OF_BYTE: ReadonlyMap<string, string> = new Map([
  ['00', 'VOTE'],
  ['03', 'network'],
  ['04', 'XYZalpha'],
  ['05', 'XYZbeta'],
  ['06', 'XYZgamma'],
  ['07', 'XYZdelta'],
  ['08', 'XYZepsilon'],
  ['09', 'fBTC'],
  ['0a', 'fDAI'],
  ['0b', 'fEURO'],
  ['0c', 'fUSDC'],
]);

/**
 * Account types by number. The missing numbers were never assigned. Later numbers have
 * no name here and are written as `#19`.
 */
const ACCOUNT_TYPES: ReadonlyMap<number, string> = new Map([
  [0, 'UNSPECIFIED'],
  [1, 'INSURANCE'],
  [2, 'SETTLEMENT'],
  [3, 'MARGIN'],
  [4, 'GENERAL'],
  [5, 'FEES_INFRASTRUCTURE'],
  [6, 'FEES_LIQUIDITY'],
  [7, 'FEES_MAKER'],
  [9, 'BOND'],
  [10, 'EXTERNAL'],
  [11, 'GLOBAL_INSURANCE'],
  [12, 'GLOBAL_REWARD'],
  [13, 'PENDING_TRANSFERS'],
  [14, 'REWARD_MAKER_PAID_FEES'],
  [15, 'REWARD_MAKER_RECEIVED_FEES'],
  [16, 'REWARD_LP_RECEIVED_FEES'],
  [17, 'REWARD_MARKET_PROPOSERS'],
  [18, 'HOLDING'],
]);
const ACCOUNT_TYPE_PREFIX = 'ACCOUNT_TYPE_';
const TRANSFER_TYPE_PREFIX = 'TRANSFER_TYPE_';
/** Maximum number of digits in the number of a type. */
const TYPE_DIGITS_MAX = 9;

/**
 * Decodes an id: `\xAA…`, `aa…` or a word → lower-case hex or the word; a bare `\x` →
 * '' (no id).
 */
export function decodeId(text: string): string | undefined {
  const bare = text.startsWith('\\x') ? text.slice(2) : text;
  if (bare === '') return '';
  const lower = bare.toLowerCase();
  const word = WORD_OF_BYTE.get(lower);
  if (word !== undefined) return word;
  return HEX_BYTES.test(lower) ? lower : canonicalId(bare);
}

/**
 * Decodes a party id of a source that has its own ids. Ids in the public service's
 * format are decoded as such; any other printable string is itself the id, as in the
 * source's list.
 */
export function decodePartyId(text: string): string | undefined {
  const bytes =
    text === '' || text.startsWith('\\x') ? decodeId(text) : undefined;
  return bytes ?? canonicalPartyId(text);
}

/**
 * Decodes an account type: `3`, `ACCOUNT_TYPE_MARGIN` or `MARGIN` → `MARGIN`; a number
 * without a known name → `#19`; an empty string → ''.
 */
export function decodeAccountType(text: string): string | undefined {
  if (!UNSIGNED.test(text))
    return text === '' ? '' : decodeTypeName(text, ACCOUNT_TYPE_PREFIX);
  if (text.length > TYPE_DIGITS_MAX) return undefined;
  const number = Number(text);
  return ACCOUNT_TYPES.get(number) ?? `#${number}`;
}

/**
 * Decodes a transfer type: `TRANSFER_TYPE_DEPOSIT` or `DEPOSIT` → `DEPOSIT`; a bare
 * number → `#7`.
 */
export function decodeTransferType(text: string): string | undefined {
  if (UNSIGNED.test(text) && text.length <= TYPE_DIGITS_MAX)
    return `#${Number(text)}`;
  return decodeTypeName(text, TRANSFER_TYPE_PREFIX);
}

function decodeTypeName(text: string, prefix: string): string | undefined {
  const bare = text.startsWith(prefix) ? text.slice(prefix.length) : text;
  return bare.length <= TYPE_NAME_CHARACTERS_MAX && TYPE_NAME.test(bare)
    ? bare
    : undefined;
}

/**
 * Decodes digits with an optional sign, and removes `+`, leading zeros and the sign of
 * `-0`; an empty string → ''.
 */
export function decodeInteger(text: string): string | undefined {
  if (text === '') return '';
  const isNegative = text.startsWith('-');
  const digits = isNegative || text.startsWith('+') ? text.slice(1) : text;
  if (digits.length > INTEGER_DIGITS_MAX || !UNSIGNED.test(digits))
    return undefined;
  const canonical = digits.startsWith('0')
    ? digits.replace(/^0+(?=.)/, '')
    : digits;
  return isNegative && canonical !== '0' ? `-${canonical}` : canonical;
}
