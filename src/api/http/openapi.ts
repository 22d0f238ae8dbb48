/** `/openapi.json`, made from the schemas that validate and serialize, so that it cannot tell of others. */
import swagger from '@fastify/swagger';
import type { FastifyInstance, FastifySchema } from 'fastify';
import { RUN } from '../../runs/run-schema.ts';
import { toJsonSchema } from './schemas.ts';
import { STATUS_BODY } from './status-error.ts';

const REFUSED = {
  description: 'Refused',
  content: { 'application/json': { schema: { $ref: 'Error#' } } },
};

/** Adds the route; every route added after it is told of, save those without a schema or whose schema says `hide`. */
export async function addOpenApi(server: FastifyInstance, version: string): Promise<void> {
  server.addSchema({ $id: 'Error', ...toJsonSchema(STATUS_BODY) });
  server.addSchema({ $id: 'Run', ...toJsonSchema(RUN) });
  await server.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'ledger-mirror',
        version,
        description: 'A mirror of a ledger network’s query service.',
        license: { name: 'Apache-2.0', url: 'https://www.apache.org/licenses/LICENSE-2.0' },
      },
      servers: [{ url: '/', description: 'The mirror that this document comes from' }],
      tags: [
        { name: 'service', description: 'The source’s own interface' },
        { name: 'exports', description: 'Exports on demand' },
        { name: 'mirror', description: 'What the mirror knows of itself, and its runs' },
        { name: 'health', description: 'Probes and metrics' },
      ],
      components: {
        securitySchemes: {
          token: { type: 'http', scheme: 'bearer', description: 'API_TOKEN, where it is set' },
        },
      },
      security: [{ token: [] }],
    },
    refResolver: {
      buildLocalReference: ({ $id }, _base, _fragment, index) =>
        typeof $id === 'string' ? $id : `def-${index}`,
    },
    transform: ({ schema, url, route }) => ({
      url,
      schema: schema === undefined ? { hide: true } : described(schema, url, String(route.method)),
    }),
  });
  server.get('/openapi.json', { schema: { hide: true } }, () => server.swagger());
}

function described({ produces, ...schema }: FastifySchema, url: string, method: string): FastifySchema {
  if (schema.hide === true) return schema;
  const answers = (schema.response ?? {}) as Readonly<Record<string, object>>;
  // What is no JSON is told of here alone: nothing serializes it.
  const plain = produces?.map((type) => [type, { schema: { type: 'string' } }] as const) ?? [];
  const text = { 200: { description: 'Success', content: Object.fromEntries(plain) } };
  return {
    operationId: nameOf(url, method),
    ...schema,
    response: {
      ...(plain.length === 0 ? {} : text),
      ...answers,
      '4XX': REFUSED,
      '5XX': { ...REFUSED, description: 'Failed; try again' },
    },
  };
}

/** `GET /mirror/runs/:id` is `getMirrorRunsById`. */
function nameOf(url: string, method: string): string {
  const words = url.split(/[/.]/).filter((part) => part !== '');
  const names = words.map((word) => (word.startsWith(':') ? `by-${word.slice(1)}` : word));
  return [method.toLowerCase(), ...names]
    .join('-')
    .replaceAll(/-+(\w)/g, (_match, letter: string) => letter.toUpperCase());
}
