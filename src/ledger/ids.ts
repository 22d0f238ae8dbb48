/**
 * Ids of parties and assets, and keys of checkpoints, in the service's format. Every id
 * from outside is validated here before it is used in a URL, a query or a path.
 */
import { UsageError } from '../errors/errors.ts';

const HEX = /^[0-9a-f]+$/;
const HEX_ID_CHARS = 64;

/**
 * Ids that are words instead of hex, keyed by their lower-case spelling: the owner of
 * the network's own accounts, and some built-in assets and parties.
 */
export const ID_WORDS: ReadonlyMap<string, string> = new Map(
  'network VOTE XYZalpha XYZbeta XYZgamma XYZdelta XYZepsilon fBTC fDAI fEURO fUSDC'
    .split(' ')
    .map((word) => [word.toLowerCase(), word]),
);

/**
 * The party that owns the network's accounts. It is in the list but cannot be exported.
 */
export const NETWORK_PARTY = 'network';

/**
 * Returns the canonical form of a party or asset id: lower-case hex, or a well-known
 * word.
 * @returns undefined if `text` is not an id
 */
export function canonicalId(text: string): string | undefined {
  if (isHexId(text)) return text;
  const lower = text.toLowerCase();
  return isHexId(lower) ? lower : ID_WORDS.get(lower);
}

/** Whether the id is 64 lower-case hex digits, as the public service writes ids. */
export function isHexId(id: string): boolean {
  // A counted repetition in the pattern would take twice as long.
  return id.length === HEX_ID_CHARS && HEX.test(id);
}

/**
 * Maximum size of a party id in bytes. Sources other than the public service have their
 * own ids.
 */
export const PARTY_ID_BYTES_MAX = 1024;
/**
 * Matches a string without control characters, lone surrogates or invisible characters,
 * and without white space at either end. The two joiners are allowed between other
 * characters, because some scripts and emoji need them.
 */
const PRINTABLE =
  /^(?!\s)(?:[^\p{Cc}\p{Cs}\p{Cf}\p{Zl}\p{Zp}]|(?<=\S)[\u200c\u200d](?=\S))+(?<!\s)$/u;

/**
 * Returns the canonical form of a party id from any source's list: the result of
 * `canonicalId`, or else the string itself.
 * @returns undefined if `text` is too long or not printable
 */
export function canonicalPartyId(text: string): string | undefined {
  const known = canonicalId(text);
  if (known !== undefined) return known;
  return Buffer.byteLength(text) <= PARTY_ID_BYTES_MAX && PRINTABLE.test(text)
    ? text
    : undefined;
}

/**
 * Whether a party has a ledger. All listed parties do, except the owner of the
 * network's accounts.
 */
export function isExportableParty(id: string): boolean {
  return id !== NETWORK_PARTY && canonicalPartyId(id) === id;
}

/**
 * Builds the key of a checkpoint. Inside a hash, `/` is escaped, because it is the
 * separator.
 */
export function checkpointKey(
  atBlock: string,
  hash: string,
  blockHash: string,
): string {
  return `${atBlock}/${escapeSlash(hash)}/${escapeSlash(blockHash)}`;
}

function escapeSlash(text: string): string {
  return /[%/]/.test(text)
    ? text.replaceAll('%', '%25').replaceAll('/', '%2F')
    : text;
}

/**
 * A prefix that no id or height can have, because neither contains control characters.
 */
const ODD = '\u0001odd/';

/**
 * Returns the key of a row that cannot be parsed. The same JSON always has the same
 * key.
 */
export function oddKey(json: string): string {
  // Loaded on demand, because every command reads ids but few encounter such a row.
  const { createHash } = process.getBuiltinModule('node:crypto');
  return ODD + createHash('sha256').update(json).digest('hex');
}

export function isOddKey(key: string): boolean {
  return key.startsWith(ODD);
}

/** Returns only the keys of rows that could be parsed. */
export function withoutOddKeys(keys: readonly string[]): readonly string[] {
  return keys.filter((key) => !isOddKey(key));
}

export function heightOf(checkpoint: string): bigint {
  return BigInt(checkpoint.slice(0, checkpoint.indexOf('/')));
}

/**
 * Maximum number of matches that a search for a shortened id reads. An exact match
 * comes first.
 */
export const CANDIDATES_MAX = 4;

/**
 * Splits an id as users copy it: the whole id, its beginning, or its beginning and end
 * with `…` between them.
 */
export function splitCutId(given: string): {
  readonly prefix: string;
  readonly suffix: string;
} {
  const [prefix = '', suffix = ''] = given.split(/…|\.\.\./u);
  return { prefix, suffix };
}

/**
 * Whether the string may be a shortened id: it contains `…`, or consists of at least
 * four hex digits. Only hex ids are shortened for display, so any other string is a
 * whole id.
 */
export function isCutId(given: string): boolean {
  return /…|\.\.\.|^[0-9a-f]{4,}$/u.test(given);
}

/**
 * Chooses the candidate that a user means by a whole or shortened id. In the last
 * parameter, `where` is the option or command that received the id, and `hint` is the
 * advice to give if there is no candidate.
 * @param candidates at most `CANDIDATES_MAX`; one that equals `given` must be first
 * @throws UsageError if there is no candidate, or if there are several and none equals
 *   `given`
 */
export function chooseById<Candidate>(
  given: string,
  candidates: readonly Candidate[],
  idOf: (candidate: Candidate) => string,
  { where, noun, hint }: Readonly<Record<'where' | 'noun' | 'hint', string>>,
): Candidate {
  const [first, ...others] = candidates;
  const shown = JSON.stringify(given.slice(0, 80));
  if (first === undefined)
    throw new UsageError([`${where}: there is no ${noun} ${shown}; ${hint}`]);
  if (others.length === 0 || idOf(first) === given) return first;
  const named = candidates
    .slice(0, CANDIDATES_MAX - 1)
    .map(idOf)
    .join(', ');
  const more = candidates.length < CANDIDATES_MAX ? '' : ' and more';
  throw new UsageError([
    `${where}: more than one ${noun} begins with ${shown}: ${named}${more}; give ` +
      'more of the id',
  ]);
}
