/** How routes are added: their schemas validate, serialize, and are what OpenAPI tells of them. */
import type {
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  FastifySchema,
} from 'fastify';
import { z } from 'zod';

/** By its pattern: the format alone lets `urn:uuid:` pass, which Postgres does not know. */
export const UUID = z.guid();
export const TEXT_OR_NULL = z.string().nullable();
export const BY_ID = z.strictObject({ id: UUID });

/** A strict object takes no other members than those it names. */
interface RouteParts<Params, Query, Body> extends Pick<
  FastifySchema,
  'summary' | 'description' | 'produces'
> {
  readonly params?: z.ZodType<Params>;
  readonly querystring?: z.ZodType<Query>;
  readonly body?: z.ZodType<Body>;
  readonly response?: Readonly<Record<number, z.ZodType>>;
}

/** @param tag under which OpenAPI tells of the routes; those of the console's page have none, and are not told of */
export function openRoutes(
  server: FastifyInstance,
  tag?: 'service' | 'exports' | 'mirror' | 'health',
) {
  return <Params, Querystring, Body>(
    /** `GET /path` */
    route: string,
    { response = {}, ...parts }: RouteParts<Params, Querystring, Body>,
    handler: (
      request: FastifyRequest<{ Params: Params; Querystring: Querystring; Body: Body }>,
      reply: FastifyReply,
    ) => unknown,
  ): void => {
    const [method = '', url = ''] = route.split(' ');
    const schema = {
      ...(tag && { tags: [tag] }),
      ...toJson(parts),
      response: toJson(response),
    };
    // What the service is asked is read by its gateway's rules, in the handler.
    const rules = url.startsWith('/api/v2/')
      ? { validatorCompiler: () => () => true }
      : {};
    server.route<{ Params: Params; Querystring: Querystring; Body: Body }>({
      method,
      url,
      schema,
      handler,
      ...rules,
    });
  };
}

/** A schema that the server knows by its name. */
export function named<Value = unknown>(name: string): z.ZodType<Value> {
  return z.unknown().meta({ $ref: `${name}#` }) as z.ZodType<Value>;
}

/** Lets routes refer to schemas by their names. */
export function nameSchemas(
  server: FastifyInstance,
  schemas: Readonly<Record<string, z.ZodType>>,
): void {
  for (const [name, schema] of Object.entries(schemas))
    server.addSchema({ $id: name, ...toJsonSchema(schema) });
}

function toJsonSchema(schema: z.ZodType): Readonly<Record<string, unknown>> {
  // Fastify's validator knows no dialect but its own.
  const { $schema: _dialect, ...json } = z.toJSONSchema(schema, {
    io: 'input',
    target: 'draft-7',
  });
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
