/** `/openapi.json`, made from the schemas that validate and serialize, so that it cannot tell of others. */
import swagger from '@fastify/swagger';
import type { FastifyInstance, FastifySchema } from 'fastify';
import { version } from '../../version.ts';
import { RUN } from '../../runs/run-schema.ts';
import { nameSchemas } from '../kit/routes.ts';
import { STATUS_BODY } from '../kit/status-error.ts';

const REFUSED = {
  description: 'Refused',
  content: { 'application/json': { schema: { $ref: 'Error#' } } },
};

/** Adds the route; every route added after it is told of, save those without a tag. */
export async function addOpenApi(server: FastifyInstance): Promise<void> {
  nameSchemas(server, { Error: STATUS_BODY, Run: RUN });
  await server.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'ledger-mirror',
        version: version(),
        description: 'A mirror of a ledger network’s query service.',
        license: {
          name: 'Apache-2.0',
          url: 'https://www.apache.org/licenses/LICENSE-2.0',
        },
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
          token: {
            type: 'http',
            scheme: 'bearer',
            description: 'API_TOKEN, where it is set',
          },
        },
      },
      security: [{ token: [] }],
    },
    refResolver: {
      buildLocalReference: ({ $id }, _base, _fragment, index) =>
        typeof $id === 'string' ? $id : `def-${index}`,
    },
    hideUntagged: true,
    transform: ({ schema, url, route }) => ({
      url,
      schema: describe(url, String(route.method), schema),
    }),
  });
  server.get('/openapi.json', () => server.swagger());
}

function describe(
  url: string,
  method: string,
  { produces, response = {}, ...schema }: FastifySchema = {},
): FastifySchema {
  // What is no JSON is told of here alone: nothing serializes it.
  const types = produces?.map((type) => [type, { schema: { type: 'string' } }] as const);
  const text = types && {
    200: { description: 'Success', content: Object.fromEntries(types) },
  };
  const refused = {
    '4XX': REFUSED,
    '5XX': { ...REFUSED, description: 'Failed; try again' },
  };
  // `GET /mirror/runs/:id` is `getMirrorRunsById`.
  const operationId = `${method.toLowerCase()}${url.replaceAll('/:', '/by/')}`.replaceAll(
    /\/(\w)/g,
    (_match, letter: string) => letter.toUpperCase(),
  );
  return {
    operationId,
    ...schema,
    response: { ...text, ...(response as object), ...refused },
  };
}
