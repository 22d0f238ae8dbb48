/**
 * Canonical JSON (RFC 8785): equal contents always serialize to the same bytes, without
 * spaces and with sorted names. A statement rebuilt from its contents therefore has the
 * same hash.
 */
export type Json =
  | null
  | boolean
  | number
  | string
  | readonly Json[]
  | { readonly [name: string]: Json };

export function canonicalJson(value: Json): string {
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  if (isList(value)) return `[${value.map(canonicalJson).join(',')}]`;
  const members = Object.keys(value)
    .toSorted()
    .map(
      (name) => `${JSON.stringify(name)}:${canonicalJson(value[name] ?? null)}`,
    );
  return `{${members.join(',')}}`;
}

function isList(value: object): value is readonly Json[] {
  return Array.isArray(value);
}
