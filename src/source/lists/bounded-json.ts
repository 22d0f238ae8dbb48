/**
 * Bounds for JSON from outside, checked on its bytes before `JSON.parse` sees them: a few kilobytes on the
 * wire can unpack into brackets that take gigabytes as objects, and end the process.
 */

export interface JsonBounds {
  /** Objects and arrays inside each other. */
  readonly depthMax: number;
  /** Members and elements in all, however deep. */
  readonly valuesMax: number;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;

/**
 * Reads each byte once and keeps nothing. Malformed JSON is left to the parser.
 * @returns what is exceeded, in words for a message; undefined where the text may be parsed
 */
export function findExcess(json: Uint8Array, { depthMax, valuesMax }: JsonBounds): string | undefined {
  let depth = 0;
  let values = 0;
  for (let at = 0; at < json.length; at += 1) {
    const byte = json[at];
    if (byte === QUOTE) at = endOfString(json, at);
    else if (byte === COMMA) values += 1;
    else if (byte === CLOSE_BRACKET || byte === CLOSE_BRACE) depth -= 1;
    else if (byte === OPEN_BRACKET || byte === OPEN_BRACE) {
      depth += 1;
      values += 1;
      if (depth > depthMax) return `more than ${depthMax} objects or arrays inside each other`;
    }
    if (values > valuesMax) return `more than ${valuesMax} values`;
  }
  return undefined;
}

/** @returns the place of the closing quote, or the end where there is none */
function endOfString(json: Uint8Array, start: number): number {
  let at = start + 1;
  while (at < json.length && json[at] !== QUOTE) at += json[at] === BACKSLASH ? 2 : 1;
  return at;
}
