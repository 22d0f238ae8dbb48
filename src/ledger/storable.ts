/** Texts from outside that go into jsonb as they are: Postgres keeps neither NUL nor half a surrogate pair there. */
import { isRecord } from './error-body.ts';

/** The same JSON value, with U+FFFD in the place of what cannot be stored. */
export function storable(value: unknown): unknown {
  if (typeof value === 'string') return value.toWellFormed().replaceAll('\0', '\ufffd');
  if (Array.isArray(value)) return value.map(storable);
  if (!isRecord(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([name, inner]) => [String(storable(name)), storable(inner)]),
  );
}
