/**
 * Hides secrets in everything that is stored, shown, logged or sent. The process
 * registers the secrets in its configuration once. Each is then hidden in every encoding
 * in which another program may echo it.
 */

/** The text that replaces a secret. */
export const HIDDEN = '[secret]';
/**
 * Minimum length of a secret to hide. Hiding shorter ones would hide parts of ordinary
 * words.
 */
const CHARACTERS_MIN = 4;

/** Matches `scheme://user:password@` anywhere in a string. */
const URL_USER = /\b([a-z][a-z0-9+.-]*:\/\/)[^\s/?#"'<>]*@/gi;
const URL_PARAMETER =
  /([?&](?:[\w.-]*(?:password|secret|token|key|signature))=)[^&\s"']+/gi;
const AUTH_SCHEME = /\b(bearer|basic)\s+[\w.~+/=-]{4,}/gi;

const known = new Set<string>();
let pattern: RegExp | undefined;

/**
 * Registers secrets. From then on, `hideSecrets` hides them and their parts in this
 * process.
 */
export function rememberSecrets(secrets: Iterable<string>): void {
  for (const secret of secrets) {
    for (const part of partsOf(secret)) {
      for (const form of formsOf(part))
        if (form.length >= CHARACTERS_MIN) known.add(form);
    }
  }
  const longestFirst = [...known].toSorted((a, b) => b.length - a.length);
  const alternatives = longestFirst.map((form) =>
    form.replaceAll(/[^a-z\d]/gi, writtenAs),
  );
  pattern =
    alternatives.length === 0
      ? undefined
      : new RegExp(alternatives.join('|'), 'gi');
}

/** Masks the registered secrets in a string. */
export function hideKnownSecrets(text: string): string {
  return pattern === undefined ? text : text.replace(pattern, HIDDEN);
}

/**
 * Hides the registered secrets, and anything that looks like a secret: passwords in URLs
 * and authorization values.
 */
export function hideSecrets(text: string): string {
  return hideKnownSecrets(text)
    .replace(URL_USER, `$1${HIDDEN}@`)
    .replace(URL_PARAMETER, `$1${HIDDEN}`)
    .replace(AUTH_SCHEME, `$1 ${HIDDEN}`);
}

/**
 * Returns a secret and those of its parts that are secrets themselves: for `Bearer X`
 * also X; for `Basic X` also `user:password`, which X encodes, and the password.
 */
function partsOf(secret: string): readonly string[] {
  const [, scheme = '', value = ''] = /^([\w-]+)\s+(.+)$/.exec(secret) ?? [];
  if (value === '') return [secret];
  if (scheme.toLowerCase() !== 'basic') return [secret, value];
  const pair = Buffer.from(value, 'base64').toString('utf8');
  return [secret, value, pair, pair.slice(pair.indexOf(':') + 1)];
}

/** Returns a secret unchanged, and as URLs, JSON and Basic authentication encode it. */
function formsOf(part: string): readonly string[] {
  const base64 = Buffer.from(part).toString('base64');
  return [
    part,
    decodeUrl(part),
    encodeURIComponent(part),
    new URLSearchParams([['', part]]).toString().slice(1),
    JSON.stringify(part).slice(1, -1),
    base64,
    base64.replace(/=+$/, ''),
    Buffer.from(part).toString('base64url'),
  ];
}

/**
 * Returns a pattern that matches a character, both unchanged and as JSON and HTML may
 * escape it.
 */
function writtenAs(character: string): string {
  const code = character.charCodeAt(0);
  const hex = code.toString(16);
  const names = /[&<>"']/.test(character) ? '|amp|lt|gt|quot|apos' : '';
  const html = `&(?:#0*${code}|#x0*${hex}${names});`;
  const plain =
    character === '/'
      ? '\\\\?/'
      : character.replace(/[\\^$.*+?()[\]{}|-]/, '\\$&');
  return `(?:${plain}|${html}|\\\\u${hex.padStart(4, '0')})`;
}

/** Decodes percent escapes. Returns the string unchanged if they are invalid. */
export function decodeUrl(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
