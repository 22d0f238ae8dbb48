/** JSON Schemas that many routes share, and short forms of objects. */
export const HIDDEN = { hide: true } as const;
export const UUID = { type: 'string', format: 'uuid' } as const;
export const TEXT = { type: 'string' } as const;
export const TEXT_OR_NULL = { type: ['string', 'null'] } as const;
export const FLAG = { type: 'boolean' } as const;
export const OPEN_OBJECT = { type: 'object', additionalProperties: true } as const;

type Properties = Readonly<Record<string, object>>;

export interface ObjectSchema<P extends Properties = Properties> {
  readonly type: 'object';
  readonly properties: P;
  readonly required: readonly string[];
  readonly additionalProperties?: boolean;
}

/** What is sent: an object that has all of these properties, but for the optional ones. */
export function sent<P extends Properties>(
  properties: P,
  optional: readonly (keyof P)[] = [],
): ObjectSchema<P> {
  const required = Object.keys(properties).filter((name) => !optional.includes(name));
  return { type: 'object', properties, required };
}

/** What is taken: an object that has no other properties than these, and of them those that are required. */
export function taken<P extends Properties>(
  properties: P,
  required: readonly (keyof P & string)[] = [],
): ObjectSchema<P> {
  return { type: 'object', properties, required, additionalProperties: false };
}

export const BY_ID = taken({ id: UUID }, ['id']);
