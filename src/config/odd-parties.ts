/** Finds unusual ids in NIGHTLY_PARTIES without contacting any service. */
import { formatCount } from '../format/format.js';
import { isHexId, NETWORK_PARTY } from '../ledger/ids.ts';

const SHOWN_CHARACTERS_MAX = 80;

/**
 * Returns a note about ids that look unusual. `config` shows it, because that command
 * contacts no service and cannot look them up.
 */
export function describeOddParties(ids: readonly string[]): string | undefined {
  const odd = ids.filter((id) => !isHexId(id) && id !== NETWORK_PARTY);
  const [first] = odd;
  if (first === undefined) return undefined;
  const others = odd.length - 1;
  const more = others === 0 ? '' : ` and ${formatCount(others)} more`;
  const shown = JSON.stringify(first.slice(0, SHOWN_CHARACTERS_MAX));
  return (
    `NIGHTLY_PARTIES: ${shown}${more} ${others === 0 ? 'is' : 'are'} not 64 hexadecimal ` +
    'digits, as the ids of most networks are; `ledger-mirror doctor` asks the source'
  );
}
