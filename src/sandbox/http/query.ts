/**
 * Reads a query string as the service's gateway does: names in either spelling, unknown ones ignored, each
 * value parsed as Go parses it, and the gateway's own words where it cannot.
 */
import { unescape as unescapePercent } from 'node:querystring';
import { gatewayError } from './errors.ts';

/** Parameters that only have members; a value of their own cannot be read. */
const MESSAGES = new Map([
  ['pagination', 'datanode.api.v2.Pagination'],
  ['date_range', 'datanode.api.v2.DateRange'],
]);
const TRUE = new Set(['1', 't', 'T', 'true', 'TRUE', 'True']);
const FALSE = new Set(['0', 'f', 'F', 'false', 'FALSE', 'False']);

/** The parameters of one request, asked by their name in the service's definitions (`pagination.newest_first`). */
export class Query {
  readonly #values = new Map<string, string[]>();

  /** @throws ServiceError 400 where the text is no query string */
  constructor(text: string) {
    for (const part of text.split('&')) {
      if (part === '') continue;
      if (part.includes(';')) throw gatewayError('InvalidArgument', 'invalid semicolon separator in query');
      const at = part.indexOf('=');
      const name = unescaped(at < 0 ? part : part.slice(0, at));
      const value = at < 0 ? '' : unescaped(part.slice(at + 1));
      // `a[b]=c` is read as the two values b and c of a.
      const [, outer, member] = /^(.*)\[(.*)\]$/.exec(name) ?? [];
      const canonical = (outer ?? name).split('.').map(snakeCase).join('.');
      const values = this.#values.get(canonical) ?? (member === undefined ? [] : [member]);
      this.#values.set(canonical, [...values, value]);
    }
    for (const [message, type] of MESSAGES) {
      const value = this.text(message);
      if (value !== undefined) throw unreadable(message, `unsupported message type: "${type}"`);
    }
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  text(name: string): string | undefined {
    const values = this.#values.get(name);
    if (values !== undefined && values.length > 1) {
      throw gatewayError(
        'InvalidArgument',
        `too many values for field "${field(name)}": ${values.join(', ')}`,
      );
    }
    return values?.[0];
  }

  int32(name: string): number | undefined {
    const value = this.#integer(name, 32n);
    return value === undefined ? undefined : Number(value);
  }

  int64(name: string): bigint | undefined {
    return this.#integer(name, 64n);
  }

  boolean(name: string): boolean | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    if (!TRUE.has(text) && !FALSE.has(text))
      throw unreadable(name, goError('ParseBool', text, 'invalid syntax'));
    return TRUE.has(text);
  }

  #integer(name: string, bits: bigint): bigint | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    if (!/^[+-]?\d+$/.test(text)) throw unreadable(name, goError('ParseInt', text, 'invalid syntax'));
    const value = BigInt(text.replace('+', ''));
    if (BigInt.asIntN(Number(bits), value) !== value) {
      throw unreadable(name, goError('ParseInt', text, 'value out of range'));
    }
    return value;
  }
}

function unreadable(name: string, reason: string): Error {
  return gatewayError('InvalidArgument', `parsing field "${field(name)}": ${reason}`);
}

function goError(parser: string, text: string, reason: string): string {
  return `strconv.${parser}: parsing ${JSON.stringify(text)}: ${reason}`;
}

/** Errors name the last part only. */
function field(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1);
}

function snakeCase(part: string): string {
  return part.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function unescaped(text: string): string {
  const bad = /%(?![0-9a-fA-F]{2}).{0,2}/.exec(text);
  if (bad !== null) throw gatewayError('InvalidArgument', `invalid URL escape ${JSON.stringify(bad[0])}`);
  return unescapePercent(text.replaceAll('+', ' '));
}
