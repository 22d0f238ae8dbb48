/**
 * Reads a query string the way the service's gateway does: fields by either spelling, each at most
 * once, values by Go's rules, and what nobody knows ignored. So the same request gets the same error.
 */
import { StatusError } from './status-error.ts';

/** What a field of each kind is read as. */
interface Values {
  string: string;
  int32: number;
  int64: bigint;
  bool: boolean;
}
type FieldKind = keyof Values;

/** A message's fields by their proto names, `pagination.newest_first`; messages are implied by the dots. */
export type Fields = Readonly<Record<string, FieldKind>>;

/** What was given; a field that was not is absent. */
export type Given<F extends Fields> = { -readonly [Name in keyof F]?: Values[F[Name]] };

/** Fields that only have members: a value of their own cannot be read. */
const MESSAGES = new Map([
  ['pagination', 'datanode.api.v2.Pagination'],
  ['date_range', 'datanode.api.v2.DateRange'],
]);
const PARAMETERS_MAX = 100;
const INT_BITS = { int32: 31n, int64: 63n } as const;
const TRUE = /^(?:1|t|T|true|TRUE|True)$/;
const FALSE = /^(?:0|f|F|false|FALSE|False)$/;

/**
 * @param url the request target, with its query string
 * @throws StatusError 400 without details, in the gateway's words
 */
export function readQuery<F extends Fields>(url: string, fields: F): Given<F> {
  const given: Record<string, Values[FieldKind]> = {};
  for (const [key, values] of parameters(url)) {
    const name = fieldName(key, fields);
    if (name === undefined) continue;
    const last = name.slice(name.lastIndexOf('.') + 1);
    const kind = fields[name];
    if (Object.hasOwn(given, name))
      throw refuse(`field already set for oneof "_${last}"`);
    if (values.length > 1)
      throw refuse(`too many values for field "${last}": ${values.join(', ')}`);
    if (kind === undefined) {
      throw refuse(
        `parsing field "${last}": unsupported message type: "${MESSAGES.get(name) ?? name}"`,
      );
    }
    given[name] = readValue(last, kind, values[0] ?? '');
  }
  return given as Given<F>;
}

/** Keys in the order of their first appearance; `a[b]=c` counts as the values b and c of a. */
function parameters(url: string): Map<string, string[]> {
  const start = url.indexOf('?');
  const pairs = start < 0 ? [] : url.slice(start + 1).split('&', PARAMETERS_MAX + 1);
  if (pairs.length > PARAMETERS_MAX)
    throw refuse(`too many parameters: at most ${PARAMETERS_MAX} are read`);
  const found = new Map<string, string[]>();
  for (const pair of pairs) {
    if (pair === '') continue;
    if (pair.includes(';')) throw refuse('invalid semicolon separator in query');
    const equals = pair.indexOf('=');
    const key = unescape(equals < 0 ? pair : pair.slice(0, equals));
    const value = equals < 0 ? '' : unescape(pair.slice(equals + 1));
    const bracketed = /^(.*)\[(.*)\]$/s.exec(key);
    const name = bracketed?.[1] ?? key;
    const values = bracketed?.[2] === undefined ? [value] : [bracketed[2], value];
    found.set(name, [...(found.get(name) ?? []), ...values]);
  }
  return found;
}

function unescape(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    const escape = /%(?![0-9a-fA-F]{2}).{0,2}/s.exec(text)?.[0] ?? text.slice(0, 3);
    throw refuse(`invalid URL escape ${JSON.stringify(escape)}`);
  }
}

/** The field or message that a key names, by its proto name; undefined where nobody knows it. */
function fieldName(key: string, fields: Fields): string | undefined {
  const name = key
    .split('.')
    .map((part) =>
      part.includes('_')
        ? part
        : part.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
    )
    .join('.');
  const known = Object.keys(fields);
  const parent = known.find((field) => name.startsWith(`${field}.`));
  if (parent !== undefined) {
    throw refuse(
      `invalid path: "${parent.slice(parent.lastIndexOf('.') + 1)}" is not a message`,
    );
  }
  return known.some((field) => field === name || field.startsWith(`${name}.`))
    ? name
    : undefined;
}

function readValue(field: string, kind: FieldKind, text: string): Values[FieldKind] {
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
    `parsing field "${field}": strconv.${parser}: parsing ${JSON.stringify(text)}: ${problem}`,
  );
}

function refuse(message: string): StatusError {
  return new StatusError('invalidArgument', message);
}
