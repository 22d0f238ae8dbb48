/**
 * Ids of parties and assets, and keys of checkpoints, as the service knows them.
 * Everything that enters from outside passes through here before it reaches a URL, a
 * query or a path.
 */
import { UsageError } from '../errors/errors.ts';

const HEX = /^[0-9a-f]+$/;
const HEX_ID_CHARS = 64;

/**
 * Ids that are words, not hex (the network's own account owner and some built-in assets
 * and parties), by their lower case.
 */
export const ID_WORDS: ReadonlyMap<string, string> = new Map(
  'network VOTE XYZalpha XYZbeta XYZgamma XYZdelta XYZepsilon fBTC fDAI fEURO fUSDC'
    .split(' ')
    .map((word) => [word.toLowerCase(), word]),
);

/**
 * The party that owns the network's accounts; it is in the list, but cannot be exported.
 */
export const NETWORK_PARTY = 'network';

/**
 * The canonical form of a party or asset id: lower-case hex, or a well-known word.
 * @returns undefined if `text` is not an id
 */
export function canonicalId(text: string): string | undefined {
  if (isHexId(text)) return text;
  const lower = text.toLowerCase();
  return isHexId(lower) ? lower : ID_WORDS.get(lower);
}

/** 64 lower-case hex digits, as the public service gives them. */
export function isHexId(id: string): boolean {
  // Counted by the expression itself, the digits take twice as long.
  return id.length === HEX_ID_CHARS && HEX.test(id);
}

/** Sources other than the public service have party ids of their own. */
export const PARTY_ID_BYTES_MAX = 1024;
/**
 * No control, no half surrogate, nothing invisible, and no space at either end. Two
 * joiners are letters of some scripts and parts of emoji: they stand between others.
 */
const PRINTABLE =
  /^(?!\s)(?:[^\p{Cc}\p{Cs}\p{Cf}\p{Zl}\p{Zp}]|(?<=\S)[\u200c\u200d](?=\S))+(?<!\s)$/u;

/**
 * The canonical form of a party id as any source lists it: as `canonicalId` has it, else
 * as it came.
 * @returns undefined if `text` is no bounded printable text
 */
export function canonicalPartyId(text: string): string | undefined {
  const known = canonicalId(text);
  if (known !== undefined) return known;
  return Buffer.byteLength(text) <= PARTY_ID_BYTES_MAX && PRINTABLE.test(text)
    ? text
    : undefined;
}

/** Every party of the list has a ledger, but the owner of the network's accounts. */
export function isExportableParty(id: string): boolean {
  return id !== NETWORK_PARTY && canonicalPartyId(id) === id;
}

/** The key of a checkpoint: `/` separates, so that inside a hash it is escaped. */
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

/** No id and no height begins so, because a control character is in none of them. */
const ODD = '\u0001odd/';

/** The key of a row that is not understood: the same for the same JSON. */
export function oddKey(json: string): string {
  // Loaded here: every command reads ids, and few meet such a row.
  const { createHash } = process.getBuiltinModule('node:crypto');
  return ODD + createHash('sha256').update(json).digest('hex');
}

export function isOddKey(key: string): boolean {
  return key.startsWith(ODD);
}

/** The keys of rows that are understood. */
export function withoutOddKeys(keys: readonly string[]): readonly string[] {
  return keys.filter((key) => !isOddKey(key));
}

export function heightOf(checkpoint: string): bigint {
  return BigInt(checkpoint.slice(0, checkpoint.indexOf('/')));
}

/**
 * A search for an id reads at most so many that begin as it does; the one that equals it
 * comes first.
 */
export const CANDIDATES_MAX = 4;

/**
 * Ids as people copy them: whole, the beginning of one, or its beginning and end with a
 * `…` between them.
 */
export function splitCutId(given: string): {
  readonly prefix: string;
  readonly suffix: string;
} {
  const [prefix = '', suffix = ''] = given.split(/…|\.\.\./u);
  return { prefix, suffix };
}

/**
 * Only hex ids are cut where they are shown: any other text without a `…`, or a few
 * digits, is a whole id.
 */
export function isCutId(given: string): boolean {
  return /…|\.\.\.|^[0-9a-f]{4,}$/u.test(given);
}

/**
 * @param candidates `CANDIDATES_MAX` at most, the one that equals `given` first
 * @param told `where`: the option or command that was given the id; `hint`: what to do
 *   if there is none
 * @throws UsageError if there is none, or several and none equals `given`
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
