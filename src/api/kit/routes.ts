/**
 * Adds routes to the server. The same schemas validate inputs, serialize outputs and
 * generate the OpenAPI document.
 */
import type {
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  FastifySchema,
} from 'fastify';
import { z } from 'zod';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Whether the read token may use the route, whatever its method. */
    onlyReads?: boolean;
  }
}

/**
 * A UUID, checked by a pattern: JSON Schema's `uuid` format would also accept
 * `urn:uuid:`, which Postgres rejects.
 */
export const UUID = z.guid();
export const TEXT_OR_NULL = z.string().nullable();
export const BY_ID = z.strictObject({ id: UUID });

/** The groups of routes in OpenAPI. */
export type RouteTag = 'service' | 'exports' | 'mirror' | 'health';

/** What a route accepts and sends. A strict object rejects unknown members. */
interface RouteSchema<Params, Query, Body> {
  readonly summary?: string;
  readonly description?: string;
  /** Media types of a response that is not JSON. */
  readonly produces?: readonly string[];
  readonly params?: z.ZodType<Params>;
  readonly querystring?: z.ZodType<Query>;
  readonly body?: z.ZodType<Body>;
  readonly response?: Readonly<Record<number, z.ZodType>>;
  /** Whether the route also supports HEAD, which monitors use. */
  readonly hasHead?: boolean;
  /**
   * Whether the read token may use the route although its method is not GET: the request
   * has a body, but changes and orders nothing.
   */
  readonly onlyReads?: boolean;
}

type RouteHandler<Params, Querystring, Body> = (
  request: FastifyRequest<{
    Params: Params;
    Querystring: Querystring;
    Body: Body;
  }>,
  reply: FastifyReply,
) => unknown;

/** Adds a route. `route` is its method and path, such as `GET /mirror/runs`. */
type AddRoute = <Params, Querystring, Body>(
  route: string,
  schema: RouteSchema<Params, Querystring, Body>,
  handler: RouteHandler<Params, Querystring, Body>,
) => void;

/**
 * Returns a function that adds routes to a server.
 * @param tag the group of these routes in OpenAPI; routes without one, such as the
 *   console's pages, are omitted there
 */
export function openRoutes(server: FastifyInstance, tag?: RouteTag): AddRoute {
  return <Params, Querystring, Body>(
    route: string,
    parts: RouteSchema<Params, Querystring, Body>,
    handler: RouteHandler<Params, Querystring, Body>,
  ): void => {
    const {
      response = {},
      hasHead = false,
      onlyReads = false,
      ...rest
    } = parts;
    const [method = '', url = ''] = route.split(' ');
    const tags = tag === undefined ? {} : { tags: [tag] };
    const schema: FastifySchema = {
      ...tags,
      ...convertSchemas(rest),
      response: convertSchemas(response),
    };
    // In the source-compatible API, the handler itself parses the request by the rules of
    // the source's gateway.
    const rules = url.startsWith('/api/v2/')
      ? { validatorCompiler: () => () => true }
      : {};
    server.route<{ Params: Params; Querystring: Querystring; Body: Body }>({
      method,
      url,
      schema,
      handler,
      exposeHeadRoute: hasHead,
      config: { onlyReads },
      ...rules,
    });
  };
}

/** Returns a reference to a schema that was registered with `nameSchemas`. */
export function named<Value = unknown>(name: string): z.ZodType<Value> {
  return z.unknown().meta({ $ref: `${name}#` }) as z.ZodType<Value>;
}

/** Registers schemas under names, so that routes can refer to them. */
export function nameSchemas(
  server: FastifyInstance,
  schemas: Readonly<Record<string, z.ZodType>>,
): void {
  for (const [name, schema] of Object.entries(schemas))
    server.addSchema({ $id: name, ...toJsonSchema(schema) });
}

function toJsonSchema(schema: z.ZodType): Readonly<Record<string, unknown>> {
  // Fastify's validator rejects schemas that declare a dialect it does not know.
  const { $schema: _dialect, ...json } = z.toJSONSchema(schema, {
    io: 'input',
    target: 'draft-7',
  });
  return json;
}

/** Converts members that are Zod schemas, and leaves the others unchanged. */
function convertSchemas(parts: object): Readonly<Record<string, unknown>> {
  const entries = Object.entries(parts).map(
    ([name, part]): [string, unknown] => [
      name,
      part instanceof z.ZodType ? toJsonSchema(part) : part,
    ],
  );
  return Object.fromEntries(entries);
}
