/**
 * Reads a query string as the source's gateway does, so that the same request gets the
 * same error. Fields may have either spelling and occur at most once, values are parsed
 * by Go's rules, and unknown fields are ignored.
 */
import { StatusError } from './status-error.ts';

/** The value type of each kind of field. */
interface ValueKinds {
  string: string;
  int32: number;
  int64: bigint;
  bool: boolean;
}
type FieldKind = keyof ValueKinds;
type FieldValue = ValueKinds[FieldKind];

/**
 * The fields of a message by their proto names, such as `pagination.newest_first`. The
 * dots separate nested messages.
 */
export type Fields = Readonly<Record<string, FieldKind>>;

/** The values of a query; fields that the query omits are absent. */
export type QueryValues<F extends Fields> = {
  -readonly [Name in keyof F]?: ValueKinds[F[Name]];
};

/** Fields that are messages: they have fields of their own, but no value themselves. */
const MESSAGES = new Map([
  ['pagination', 'datanode.api.v2.Pagination'],
  ['date_range', 'datanode.api.v2.DateRange'],
]);
const PARAMETERS_MAX = 100;
const INT_BITS = { int32: 31n, int64: 63n } as const;
const TRUE = /^(?:1|t|T|true|TRUE|True)$/;
const FALSE = /^(?:0|f|F|false|FALSE|False)$/;

/**
 * Reads the fields of a request.
 * @param url the request target, with its query string
 * @throws StatusError 400 without details, with the gateway's message
 */
export function readQuery<F extends Fields>(
  url: string,
  fields: F,
): QueryValues<F> {
  const query: Record<string, FieldValue> = {};
  for (const [key, texts] of readParameters(url)) {
    const name = fieldName(key, fields);
    if (name === undefined) continue;
    const last = lastPart(name);
    const kind = fields[name];
    if (Object.hasOwn(query, name))
      throw refuse(`field already set for oneof "_${last}"`);
    if (texts.length > 1)
      throw refuse(`too many values for field "${last}": ${texts.join(', ')}`);
    if (kind === undefined) {
      const message = MESSAGES.get(name) ?? name;
      throw refuse(
        `parsing field "${last}": unsupported message type: "${message}"`,
      );
    }
    query[name] = readValue(last, kind, texts[0] ?? '');
  }
  return query as QueryValues<F>;
}

/**
 * Splits the query into keys, in order of first appearance, with their values. `a[b]=c`
 * counts as the key `a` with the values `b` and `c`.
 */
function readParameters(url: string): Map<string, string[]> {
  const start = url.indexOf('?');
  const pairs =
    start < 0 ? [] : url.slice(start + 1).split('&', PARAMETERS_MAX + 1);
  if (pairs.length > PARAMETERS_MAX)
    throw refuse(`too many parameters: at most ${PARAMETERS_MAX} are read`);

  const parameters = new Map<string, string[]>();
  for (const pair of pairs) {
    if (pair === '') continue;
    if (pair.includes(';'))
      throw refuse('invalid semicolon separator in query');
    const equals = pair.indexOf('=');
    const key = unescape(equals < 0 ? pair : pair.slice(0, equals));
    const value = equals < 0 ? '' : unescape(pair.slice(equals + 1));
    const bracketed = /^(.*)\[(.*)\]$/s.exec(key);
    const name = bracketed?.[1] ?? key;
    const values =
      bracketed?.[2] === undefined ? [value] : [bracketed[2], value];
    parameters.set(name, [...(parameters.get(name) ?? []), ...values]);
  }
  return parameters;
}

function unescape(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    const escape =
      /%(?![0-9a-fA-F]{2}).{0,2}/s.exec(text)?.[0] ?? text.slice(0, 3);
    throw refuse(`invalid URL escape ${JSON.stringify(escape)}`);
  }
}

/**
 * Returns the proto name of the field or message that a key refers to; undefined if there
 * is none.
 */
function fieldName(key: string, fields: Fields): string | undefined {
  const name = key.split('.').map(protoName).join('.');
  const known = Object.keys(fields);
  const parent = known.find((field) => name.startsWith(`${field}.`));
  if (parent !== undefined)
    throw refuse(`invalid path: "${lastPart(parent)}" is not a message`);
  const isKnown = known.some(
    (field) => field === name || field.startsWith(`${name}.`),
  );
  return isKnown ? name : undefined;
}

/**
 * Converts a name to its proto form: `newestFirst` becomes `newest_first`. A name that
 * already contains an underscore is not changed.
 */
function protoName(part: string): string {
  if (part.includes('_')) return part;
  return part.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function lastPart(name: string): string {
  return name.slice(name.lastIndexOf('.') + 1);
}

function readValue(field: string, kind: FieldKind, text: string): FieldValue {
  if (kind === 'string') return text;
  if (kind === 'bool') {
    const isTrue = TRUE.test(text);
    if (isTrue || FALSE.test(text)) return isTrue;
    throw parseError(field, 'ParseBool', text, 'invalid syntax');
  }
  if (!/^[+-]?\d+$/.test(text))
    throw parseError(field, 'ParseInt', text, 'invalid syntax');
  const value = BigInt(text.replace(/^\+/, ''));
  const end = 2n ** INT_BITS[kind];
  if (value < -end || value >= end)
    throw parseError(field, 'ParseInt', text, 'value out of range');
  return kind === 'int32' ? Number(value) : value;
}

function parseError(
  field: string,
  parser: string,
  text: string,
  problem: string,
): StatusError {
  return refuse(
    `parsing field "${field}": strconv.${parser}: parsing ` +
      `${JSON.stringify(text)}: ${problem}`,
  );
}

function refuse(message: string): StatusError {
  return new StatusError('invalidArgument', message);
}
