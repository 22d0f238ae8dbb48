/** The one way in which a value becomes JSON that is stored, sent, shown or logged: of our own making, or a source's. */
import { hideSecrets } from '../logging/secret-masking.ts';

export interface JsonRules {
  /** For every text, names included. */
  readonly change: (text: string) => string;
  /** What nests deeper is cut. Documents nest a few levels; deeper ones are a source's, or a circle. */
  readonly depthMax?: number;
  /** Items of an array, or members of an object; more are counted. */
  readonly itemsMax?: number;
  /** What stands in the place of a member's value. */
  readonly hide?: (name: string) => string | undefined;
  /** Default: its message. */
  readonly error?: (error: Error, depth: number) => unknown;
}

/**
 * The same value as JSON has it: bigints as decimal text, instants as RFC 3339, numbers that JSON lacks as text, bytes
 * as their number.
 */
export function convertToJson(value: unknown, rules: JsonRules, depth = 0): unknown {
  const {
    change,
    depthMax = 64,
    itemsMax = Infinity,
    hide,
    error = ({ message }) => message,
  } = rules;
  if (typeof value === 'string') return change(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
  if (typeof value !== 'object' || value === null)
    return typeof value === 'function' || typeof value === 'symbol' ? undefined : value;
  if (depth >= depthMax) return '…';
  const inner = (part: unknown): unknown => convertToJson(part, rules, depth + 1);
  if (value instanceof Error) return convertToJson(error(value, depth), rules, depth);
  if (value instanceof Uint8Array) return `[${value.byteLength} bytes]`;
  if (value instanceof Map || value instanceof Set) return inner([...value]);
  if (Array.isArray(value)) {
    const more = value.length > itemsMax ? [`[${value.length - itemsMax} more]`] : [];
    return [...value.slice(0, itemsMax).map((item) => inner(item) ?? null), ...more];
  }
  if ('toJSON' in value && typeof value.toJSON === 'function')
    return inner(value.toJSON());
  const members = Object.entries(value).slice(0, itemsMax);
  // Not by assignment: a member named __proto__ stays a member.
  return Object.fromEntries(
    members.map(([name, item]) => [change(name), hide?.(name) ?? inner(item)]),
  );
}

/** With U+FFFD in the place of what Postgres cannot keep: NUL, and half a surrogate pair. */
export function toStorableJson(value: object): Readonly<Record<string, unknown>>;
export function toStorableJson(value: unknown): unknown;
export function toStorableJson(value: unknown): unknown {
  return convertToJson(value, { change: keepable });
}

/** Without secrets. */
export function withoutSecrets<Value>(value: Value): Value {
  return convertToJson(value, { change: hideSecrets }) as Value;
}

/** Storable, without secrets. Never throws: where evidence cannot be read at all, its code alone is kept. */
export function evidenceJson(value: unknown): string {
  try {
    return (
      JSON.stringify(
        convertToJson(value, { change: (text) => hideSecrets(keepable(text)) }),
      ) ?? 'null'
    );
  } catch {
    return '{"code":"EVIDENCE_UNREADABLE"}';
  }
}

function keepable(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\uFFFD');
}
