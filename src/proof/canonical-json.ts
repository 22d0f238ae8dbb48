/**
 * JSON in one form of bytes for the same contents (RFC 8785): no spaces, the names of an
 * object sorted. A statement that is rebuilt from its contents has the same hash.
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
