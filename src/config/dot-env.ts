/** How other programs write `.env` and the environment, and where a reading would differ from theirs. */

const UTF16_MARKS = ['fffe', 'feff'];
/** A name, and a value without quotes in which a # follows something other than a blank. */
const UNQUOTED_HASH =
  /^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=[ \t]*(?!["'`])[^\s#][^#\n]*?(?<=\S)#/gm;

/** @returns the text without a byte order mark, or undefined if it is UTF-16 */
export function decodeText(bytes: Buffer): string | undefined {
  const isUtf16 = UTF16_MARKS.includes(bytes.subarray(0, 2).toString('hex'));
  if (isUtf16 || bytes.includes(0)) return undefined;
  return bytes.toString('utf8').replace(/^\uFEFF/, '');
}

/**
 * Names whose value is cut here and in `node --env-file` at a #, while Compose and systemd take the
 * whole of it.
 */
export function findCutValues(text: string): readonly string[] {
  return [...text.matchAll(UNQUOTED_HASH)].map(([, name = '']) => name);
}

/** Kubernetes announces a service `api` as API_PORT=tcp://10.0.0.1:80 in every pod. */
export function isServiceLink(name: string, value: string): boolean {
  return name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value);
}
