/** `/openapi.json`, made from the schemas of the routes themselves, so that it cannot tell of others. */
import type { FastifyInstance } from 'fastify';

declare module 'fastify' {
  interface FastifySchema {
    /** Not told of. */
    hide?: boolean;
    tags?: readonly string[];
    summary?: string;
    description?: string;
  }
}

type Json = Readonly<Record<string, unknown>>;

interface Schema extends Json {
  readonly hide?: boolean;
  readonly querystring?: {
    readonly properties?: Readonly<Record<string, Json>>;
    readonly required?: readonly string[];
  };
  readonly params?: { readonly properties?: Readonly<Record<string, Json>> };
  readonly body?: Json;
  readonly response?: Readonly<Record<string, Json>>;
}

const ERROR = {
  type: 'object',
  description: 'google.rpc.Status',
  properties: {
    code: { type: 'integer' },
    message: { type: 'string' },
    details: { type: 'array', items: { type: 'object', properties: { '@type': { type: 'string' } } } },
  },
} as const;

/** Adds the route; every route added after it is told of, save those whose schema says `hide`. */
export function addOpenApi(server: FastifyInstance, version: string): void {
  const paths: Record<string, Record<string, Json>> = {};
  server.addHook('onRoute', (route) => {
    const schema = (route.schema ?? { hide: true }) as Schema;
    if (schema.hide === true) return;
    const path = route.url.replaceAll(/:(\w+)/g, '{$1}');
    const methods = typeof route.method === 'string' ? [route.method] : route.method;
    for (const method of methods) (paths[path] ??= {})[method.toLowerCase()] = operation(schema);
  });
  server.get('/openapi.json', { schema: { hide: true } }, () => ({
    openapi: '3.1.0',
    info: { title: 'ledger-mirror', version, description: 'A mirror of a ledger network’s query service.' },
    paths,
    components: {
      schemas: { Error: ERROR },
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: 'API_TOKEN, where it is set' },
      },
    },
    security: [{ token: [] }],
  }));
}

function operation(schema: Schema): Json {
  const { querystring, params, body, response } = schema;
  const parameters = [
    ...Object.entries(params?.properties ?? {}).map((entry) => parameter('path', entry, true)),
    ...Object.entries(querystring?.properties ?? {}).map((entry) =>
      parameter('query', entry, querystring?.required?.includes(entry[0]) === true),
    ),
  ];
  const answers = Object.entries(response ?? { 200: {} }).map(([status, content]) => [
    status,
    answer(content),
  ]);
  return {
    tags: schema['tags'],
    summary: schema['summary'],
    description: schema['description'],
    parameters,
    ...(body === undefined
      ? {}
      : { requestBody: { required: true, content: { 'application/json': { schema: body } } } }),
    responses: {
      ...Object.fromEntries(answers),
      default: {
        description: 'Error',
        content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
      },
    },
  };
}

function parameter(where: string, [name, schema]: readonly [string, Json], required: boolean): Json {
  const { description, ...rest } = schema;
  return { name, in: where, required, schema: rest, ...(description === undefined ? {} : { description }) };
}

function answer(content: Json): Json {
  const isEmpty = content['type'] === undefined || content['type'] === 'null';
  return {
    description: 'Success',
    ...(isEmpty ? {} : { content: { 'application/json': { schema: content } } }),
  };
}
