/** Schemas that many routes share, and how Fastify takes them. */
import type { FastifyRequest, FastifySchema } from 'fastify';
import { z } from 'zod';

export const UUID = z.string().meta({ format: 'uuid' });
export const TEXT_OR_NULL = z.string().nullable();
export const BY_ID = z.strictObject({ id: UUID });
export type ById = FastifyRequest<{ Params: z.infer<typeof BY_ID> }>;

/** A strict object takes no other members than those it names. */
interface RouteParts extends Pick<FastifySchema, 'description' | 'produces'> {
  readonly params?: z.ZodType;
  readonly querystring?: z.ZodType;
  readonly body?: z.ZodType;
  readonly response?: Readonly<Record<number, z.ZodType>>;
}

interface RouteOptions {
  readonly schema: FastifySchema;
}

/** A route as OpenAPI tells of it, which validates and serializes by the same schemas. */
export function describeRoute(
  tag: 'service' | 'exports' | 'mirror' | 'health',
  summary: string,
  { response = {}, ...parts }: RouteParts,
): RouteOptions {
  return { schema: { tags: [tag], summary, ...toJson(parts), response: toJson(response) } };
}

/** A route of the console's page, which is not told of. */
export function hideRoute(parts: RouteParts = {}): RouteOptions {
  return { schema: { hide: true, ...toJson(parts) } };
}

/** A schema that the server knows by its name. */
export function named(name: string): z.ZodType {
  return z.unknown().meta({ $ref: `${name}#` });
}

export function toJsonSchema(schema: z.ZodType): Readonly<Record<string, unknown>> {
  // Fastify's validator knows no dialect but its own.
  const { $schema: _dialect, ...json } = z.toJSONSchema(schema, { io: 'input', target: 'draft-7' });
  return json;
}

function toJson(parts: object): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(parts).map(([name, part]) => [
      name,
      part instanceof z.ZodType ? toJsonSchema(part) : part,
    ]),
  );
}
