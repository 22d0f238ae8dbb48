/** How the values of settings are written: each reader returns undefined where a text is not accepted. */
import { CronExpressionParser } from 'cron-parser';
import { canonicalId } from '../core/ids.ts';
import { KNOWN_COLUMNS, type KnownColumn } from '../ledger/header.ts';

/** Which parties the nightly run exports. A file is read when the configuration is. */
export type PartySelection =
  | { kind: 'all' }
  | { kind: 'list'; ids: readonly string[] }
  | { kind: 'file'; path: string };

/** Of which runs NOTIFY_URL is told: those of a kind, those to which something happened, or all. */
export const NOTICE_WORDS = [
  'all',
  'nightly',
  'sync',
  'export',
  'load',
  'verify',
  'started',
  'finished',
  'failed',
  'cancelled',
  'recovered',
] as const;

/** What must be escaped in a URL so that every reader of it takes the same user and password. */
export const ESCAPED = '(a % in its password is written %25)';

export function url(protocols: readonly string[]): (text: string) => URL | undefined {
  return (text) => {
    const parsed = URL.canParse(text) ? new URL(text) : undefined;
    if (parsed === undefined || !protocols.includes(parsed.protocol)) return undefined;
    return isEscaped(parsed.username) && isEscaped(parsed.password) ? parsed : undefined;
  };
}

function isEscaped(text: string): boolean {
  return !/%(?![0-9a-f]{2})/i.test(text);
}

export function integer(min: number, max: number): (text: string) => number | undefined {
  return (text) => {
    const value = /^\d{1,10}$/.test(text) ? Number(text) : undefined;
    return value !== undefined && value >= min && value <= max ? value : undefined;
  };
}

export function oneOf<const Word extends string>(
  ...words: readonly Word[]
): (text: string) => Word | undefined {
  return (text) => words.find((word) => word === text);
}

/** @returns a part of 1 */
export function percentage(given: string): number | undefined {
  const match = /^(\d{1,3}(?:\.\d{1,4})?)%$/.exec(given);
  const share = match === null ? Number.NaN : Number(match[1]) / 100;
  return share <= 1 ? share : undefined;
}

export function text(pattern: RegExp): (given: string) => string | undefined {
  return (given) => (pattern.test(given) ? given : undefined);
}

export const BYTE_UNITS: Readonly<Record<string, number>> = {
  B: 1,
  KiB: 2 ** 10,
  MiB: 2 ** 20,
  GiB: 2 ** 30,
  KB: 1e3,
  MB: 1e6,
  GB: 1e9,
};

export function byteSize(minBytes: number, maxBytes: number): (given: string) => number | undefined {
  return (given) => {
    const match = /^(\d{1,12})(B|KiB|MiB|GiB|KB|MB|GB)?$/.exec(given);
    if (match?.[1] === undefined) return undefined;
    const bytes = Number(match[1]) * (BYTE_UNITS[match[2] ?? 'B'] ?? 1);
    return bytes >= minBytes && bytes <= maxBytes ? bytes : undefined;
  };
}

export function idList(given: string): readonly string[] | undefined {
  const ids = given.split(',').map((part) => canonicalId(part.trim()));
  return ids.every((id) => id !== undefined) ? [...new Set(ids)] : undefined;
}

/** Words of `known`, separated by commas. */
export function wordsOf(known: readonly string[]): (given: string) => readonly string[] | undefined {
  return (given) => {
    const words = given.split(',').map((word) => word.trim());
    return words.every((word) => known.includes(word)) ? [...new Set(words)] : undefined;
  };
}

/** `ours=theirs`, by our name; `none`: the CSV has no such column. */
export function columnNames(given: string): ReadonlyMap<KnownColumn, string | null> | undefined {
  const names = new Map<KnownColumn, string | null>();
  for (const pair of given.split(',')) {
    const [, ours = '', theirs = ''] = /^\s*(\w+)\s*=\s*(\S.*?)\s*$/.exec(pair) ?? [];
    const column = KNOWN_COLUMNS.find((name) => name === ours);
    if (column === undefined || theirs === '' || names.has(column)) return undefined;
    if (column === 'quantity' && theirs === 'none') return undefined;
    names.set(column, theirs === 'none' ? null : theirs);
  }
  return names;
}

const DELIMITERS = { comma: ',', semicolon: ';', tab: '\t', pipe: '|' } as const;

export function delimiter(given: string): string | undefined {
  return Object.hasOwn(DELIMITERS, given) ? DELIMITERS[given as keyof typeof DELIMITERS] : undefined;
}

export function partySelection(given: string): PartySelection | undefined {
  if (given === 'all') return { kind: 'all' };
  if (given.startsWith('@')) return given.length > 1 ? { kind: 'file', path: given.slice(1) } : undefined;
  const ids = idList(given);
  return ids === undefined ? undefined : { kind: 'list', ids };
}

export function cron(given: string): string | undefined {
  try {
    CronExpressionParser.parse(given);
    return given;
  } catch {
    return undefined;
  }
}

export function timeZone(given: string): string | undefined {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: given }).resolvedOptions().timeZone === ''
      ? undefined
      : given;
  } catch {
    return undefined;
  }
}

export function objectStoreUrl(given: string): URL | undefined {
  const parsed = url(['file:', 's3:'])(given);
  if (parsed === undefined) return undefined;
  if (parsed.protocol === 'file:')
    return parsed.host === '' && parsed.pathname.length > 1 ? parsed : undefined;
  const known = ['region', 'endpoint'];
  const isKnown = [...parsed.searchParams.keys()].every((key) => known.includes(key));
  const endpoint = parsed.searchParams.get('endpoint');
  const isUsable = endpoint === null || url(['http:', 'https:'])(endpoint) !== undefined;
  return parsed.host !== '' && isKnown && isUsable ? parsed : undefined;
}

export const MINUTE_MS = 60_000;
export const DAY_MS = 24 * 60 * MINUTE_MS;
export const DURATION_UNITS: Readonly<Record<string, number>> = {
  s: 1_000,
  m: MINUTE_MS,
  h: 60 * MINUTE_MS,
  d: DAY_MS,
};

/** @returns milliseconds */
export function duration(minMs: number, maxMs: number): (given: string) => number | undefined {
  return (given) => {
    const match = /^(\d{1,9})(s|m|h|d)$/.exec(given);
    if (match?.[1] === undefined) return undefined;
    const ms = Number(match[1]) * (DURATION_UNITS[match[2] ?? ''] ?? Number.NaN);
    return ms >= minMs && ms <= maxMs ? ms : undefined;
  };
}
