/** The one way in which a value becomes JSON that is stored, sent or shown: of our own making, or a source's. */
import { hideSecrets } from './secrets.ts';

/** Documents nest a few levels; what nests deeper was made by a source, or is a circle. */
const DEPTH_MAX = 64;

/**
 * The same value as JSON has it: bigints as decimal text, instants as RFC 3339, errors as their message, numbers that
 * JSON lacks as text.
 * @param change for every text in it, names included
 */
function toJson(value: unknown, change: (text: string) => string, depth = 0): unknown {
  if (typeof value === 'string') return change(value);
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
  if (typeof value !== 'object' || value === null) {
    return typeof value === 'function' || typeof value === 'symbol' ? undefined : value;
  }
  if (depth >= DEPTH_MAX) return '…';
  const inner = (part: unknown): unknown => toJson(part, change, depth + 1);
  if (value instanceof Error) return inner(value.message);
  if (Array.isArray(value)) return value.map((item) => inner(item) ?? null);
  if ('toJSON' in value && typeof value.toJSON === 'function') return inner(value.toJSON());
  // Not by assignment: a member named __proto__ stays a member.
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [change(name), inner(item)]));
}

/** With U+FFFD in the place of what Postgres cannot keep: NUL, and half a surrogate pair. */
export function storable(value: object): Readonly<Record<string, unknown>>;
export function storable(value: unknown): unknown;
export function storable(value: unknown): unknown {
  return toJson(value, keepable);
}

/** Without secrets. */
export function hideSecretsIn<Value>(value: Value): Value {
  return toJson(value, hideSecrets) as Value;
}

/** Storable, without secrets. Never throws: where evidence cannot be read at all, its code alone is kept. */
export function evidenceJson(value: unknown): string {
  try {
    return JSON.stringify(toJson(value, (text) => hideSecrets(keepable(text)))) ?? 'null';
  } catch {
    return '{"code":"EVIDENCE_UNREADABLE"}';
  }
}

function keepable(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\uFFFD');
}
