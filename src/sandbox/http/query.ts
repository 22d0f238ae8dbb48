/**
 * Reads a query string as the service's gateway does. Names may have either spelling,
 * unknown names are ignored, values are parsed as Go parses them, and errors have the
 * gateway's wording.
 */
import { unescape as unescapePercent } from 'node:querystring';
import { GatewayError } from './errors.ts';

/** Parameters that are messages. Only their members can be set; a value is an error. */
const MESSAGES = {
  pagination: 'datanode.api.v2.Pagination',
  date_range: 'datanode.api.v2.DateRange',
};
const TRUE = ['1', 't', 'T', 'true', 'TRUE', 'True'];
const FALSE = ['0', 'f', 'F', 'false', 'FALSE', 'False'];

/**
 * The parameters of a request, by their names in the service's definitions
 * (`pagination.newest_first`).
 */
export class Query {
  readonly #values = new Map<string, string[]>();

  /**
   * Parses a query string.
   * @throws GatewayError 400 if the string is not a query string
   */
  constructor(text: string) {
    for (const part of text.split('&').filter((field) => field !== '')) {
      if (part.includes(';'))
        throw refuse('invalid semicolon separator in query');
      const [, name = '', value = ''] =
        /^([^=]*)=?(.*)$/s.exec(part)?.map(unescapeText) ?? [];
      // `a[b]=c` means that `a` has the two values `b` and `c`.
      const [, outer, member] = /^(.*)\[(.*)\]$/.exec(name) ?? [];
      const canonical = (outer ?? name).replaceAll(
        /[A-Z]/g,
        (letter) => `_${letter.toLowerCase()}`,
      );
      const values =
        this.#values.get(canonical) ?? (member === undefined ? [] : [member]);
      this.#values.set(canonical, [...values, value]);
    }
    for (const [message, type] of Object.entries(MESSAGES)) {
      if (this.text(message) !== undefined)
        throw unreadable(message, `unsupported message type: "${type}"`);
    }
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  text(name: string): string | undefined {
    const values = this.#values.get(name) ?? [];
    if (values.length < 2) return values[0];
    throw refuse(
      `too many values for field "${lastPart(name)}": ${values.join(', ')}`,
    );
  }

  int32(name: string): number | undefined {
    const value = this.int64(name, 32);
    return value === undefined ? undefined : Number(value);
  }

  int64(name: string, bits = 64): bigint | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    if (!/^[+-]?\d+$/.test(text))
      throw unparsed(name, 'ParseInt', text, 'invalid syntax');
    const value = BigInt(text.replace('+', ''));
    if (BigInt.asIntN(bits, value) === value) return value;
    throw unparsed(name, 'ParseInt', text, 'value out of range');
  }

  boolean(name: string): boolean | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    if (TRUE.includes(text) || FALSE.includes(text)) return TRUE.includes(text);
    throw unparsed(name, 'ParseBool', text, 'invalid syntax');
  }
}

function unparsed(
  name: string,
  parser: string,
  text: string,
  reason: string,
): Error {
  return unreadable(
    name,
    `strconv.${parser}: parsing ${JSON.stringify(text)}: ${reason}`,
  );
}

function unreadable(name: string, reason: string): Error {
  return refuse(`parsing field "${lastPart(name)}": ${reason}`);
}

/** Returns the name that errors use for a field. */
function lastPart(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1);
}

function unescapeText(text: string): string {
  const bad = /%(?![0-9a-fA-F]{2}).{0,2}/.exec(text);
  if (bad !== null)
    throw refuse(`invalid URL escape ${JSON.stringify(bad[0])}`);
  return unescapePercent(text.replaceAll('+', ' '));
}

function refuse(message: string): Error {
  return new GatewayError('InvalidArgument', message);
}
