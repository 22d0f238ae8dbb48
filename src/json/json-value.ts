/**
 * Converts values to JSON that is stored, sent, shown or logged. All such JSON is made
 * here.
 */
import { hideSecrets } from '../secrets/secret-masking.ts';

export interface JsonRules {
  /** Transforms every string, including member names. */
  readonly change: (text: string) => string;
  /**
   * Maximum nesting depth; deeper values are cut off. Our own documents nest only a few
   * levels; a deeper value comes from a source, or contains itself.
   */
  readonly depthMax?: number;
  /**
   * Maximum number of array items or object members to convert. An array ends with the
   * number of omitted items.
   */
  readonly itemsMax?: number;
  /** Returns the string that replaces a member's value; undefined keeps the value. */
  readonly hide?: (name: string) => string | undefined;
  /** Converts an error; by default, to its message. */
  readonly error?: (error: Error, depth: number) => unknown;
}

/**
 * Converts a value to plain JSON: a bigint becomes a decimal string, a date becomes RFC
 * 3339 text, NaN and infinities become strings, and a byte array becomes its size, such
 * as `[12 bytes]`.
 */
export function convertToJson(
  value: unknown,
  rules: JsonRules,
  depth = 0,
): unknown {
  const {
    change,
    depthMax = 64,
    itemsMax = Infinity,
    hide,
    error = ({ message }) => message,
  } = rules;
  if (typeof value === 'string') return change(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number')
    return Number.isFinite(value) ? value : String(value);
  if (typeof value !== 'object' || value === null)
    return typeof value === 'function' || typeof value === 'symbol'
      ? undefined
      : value;
  if (depth >= depthMax) return '…';
  const inner = (part: unknown): unknown =>
    convertToJson(part, rules, depth + 1);
  if (value instanceof Error)
    return convertToJson(error(value, depth), rules, depth);
  if (value instanceof Uint8Array) return `[${value.byteLength} bytes]`;
  if (value instanceof Map || value instanceof Set) return inner([...value]);
  if (Array.isArray(value)) {
    const more =
      value.length > itemsMax ? [`[${value.length - itemsMax} more]`] : [];
    return [
      ...value.slice(0, itemsMax).map((item) => inner(item) ?? null),
      ...more,
    ];
  }
  if ('toJSON' in value && typeof value.toJSON === 'function')
    return inner(value.toJSON());
  const members = Object.entries(value).slice(0, itemsMax);
  // Unlike an assignment, `fromEntries` keeps a member named __proto__.
  return Object.fromEntries(
    members.map(([name, item]) => [change(name), hide?.(name) ?? inner(item)]),
  );
}

/**
 * Converts a value to JSON that Postgres can store: NUL and lone surrogates are replaced
 * with U+FFFD.
 */
export function toStorableJson(
  value: object,
): Readonly<Record<string, unknown>>;
export function toStorableJson(value: unknown): unknown;
export function toStorableJson(value: unknown): unknown {
  return convertToJson(value, { change: replaceUnstorable });
}

/** Returns the value as JSON, with its secrets hidden. */
export function withoutSecrets<Value>(value: Value): Value {
  return convertToJson(value, { change: hideSecrets }) as Value;
}

/**
 * Serializes evidence as JSON that Postgres can store, without secrets. It never throws:
 * evidence that cannot be read becomes the code `EVIDENCE_UNREADABLE`.
 */
export function evidenceJson(value: unknown): string {
  try {
    return (
      JSON.stringify(
        convertToJson(value, {
          change: (text) => hideSecrets(replaceUnstorable(text)),
        }),
      ) ?? 'null'
    );
  } catch {
    return '{"code":"EVIDENCE_UNREADABLE"}';
  }
}

function replaceUnstorable(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\uFFFD');
}
