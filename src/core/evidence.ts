/** The one way in which evidence becomes JSON: whatever an error or an answer carried, Postgres takes it. */

import { hideSecretsIn } from './secrets.ts';

/** Evidence nests a few levels; what nests deeper was made by a source, or is a circle. */
const DEPTH_MAX = 32;

/**
 * The same JSON value, with U+FFFD in the place of what jsonb cannot keep (NUL, half a surrogate pair), bigints
 * as decimal text, instants as RFC 3339, and numbers that JSON lacks as text.
 */
export function storable(value: unknown, depth = 0): unknown {
  if (typeof value === 'string') return value.toWellFormed().replaceAll('\0', '\uFFFD');
  if (typeof value === 'bigint') return value.toString();
  if (typeof value === 'number') return Number.isFinite(value) ? value : String(value);
  if (typeof value !== 'object' || value === null) {
    return typeof value === 'function' || typeof value === 'symbol' ? undefined : value;
  }
  if (depth >= DEPTH_MAX) return '…';
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  if (value instanceof Error) return storable(value.message, depth + 1);
  if (Array.isArray(value)) return value.map((inner) => storable(inner, depth + 1) ?? null);
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [String(storable(name)), storable(inner, depth + 1)]),
  );
}

/** Without secrets. Never throws: where evidence cannot be read at all, its code alone is kept. */
export function evidenceJson(value: unknown): string {
  try {
    return JSON.stringify(hideSecretsIn(storable(value))) ?? 'null';
  } catch {
    return '{"code":"EVIDENCE_UNREADABLE"}';
  }
}
