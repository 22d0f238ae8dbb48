/** Detects where other programs read `.env` and the environment differently from us. */

const UTF16_MARKS = ['fffe', 'feff'];
/**
 * Matches a name with an unquoted value in which a # directly follows a non-space
 * character.
 */
const UNQUOTED_HASH =
  /^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=[ \t]*(?!["'`])[^\s#][^#\n]*?(?<=\S)#/gm;

/**
 * Decodes UTF-8.
 * @returns the text without a byte order mark, or undefined if the bytes are UTF-16 or
 *   binary
 */
export function decodeText(bytes: Buffer): string | undefined {
  const isUtf16 = UTF16_MARKS.includes(bytes.subarray(0, 2).toString('hex'));
  if (isUtf16 || bytes.includes(0)) return undefined;
  return bytes.toString('utf8').replace(/^\uFEFF/, '');
}

/**
 * Returns the names of values that this program and `node --env-file` cut off at a #,
 * while Compose and systemd use the whole value.
 */
export function findCutValues(text: string): readonly string[] {
  return [...text.matchAll(UNQUOTED_HASH)].map(([, name = '']) => name);
}

/**
 * Whether Kubernetes set the variable: for a service `api`, it sets
 * API_PORT=tcp://10.0.0.1:80 in every pod.
 */
export function isServiceLink(name: string, value: string): boolean {
  return name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value);
}
