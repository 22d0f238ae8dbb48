/**
 * Converts values to JSON that is stored, sent, shown or logged. All such JSON is made
 * here.
 */
import { hideSecrets } from '../secrets/secret-masking.ts';

export interface JsonRules {
  /** Changes every text, including the names of members. */
  readonly change: (text: string) => string;
  /**
   * The deepest nesting to convert; deeper values are cut. Our own documents nest a few
   * levels; a deeper value comes from a source, or contains itself.
   */
  readonly depthMax?: number;
  /**
   * The most items of an array, or members of an object, to convert. For an array, the
   * number of items left out is added.
   */
  readonly itemsMax?: number;
  /** Returns the text that replaces a member's value; undefined keeps the value. */
  readonly hide?: (name: string) => string | undefined;
  /** Describes an error; by default, by its message. */
  readonly error?: (error: Error, depth: number) => unknown;
}

/**
 * Converts a value to plain JSON: a bigint becomes decimal text, a date RFC 3339, NaN
 * and infinities text, and a byte array its size, such as `[12 bytes]`.
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
  // `fromEntries` keeps a member named __proto__, which an assignment would not.
  return Object.fromEntries(
    members.map(([name, item]) => [change(name), hide?.(name) ?? inner(item)]),
  );
}

/**
 * Converts a value to JSON that Postgres can store: U+FFFD replaces NUL and lone
 * surrogates.
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
 * Converts evidence to JSON text that Postgres can store, without secrets. It never
 * throws: evidence that cannot be read becomes the code `EVIDENCE_UNREADABLE`.
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
