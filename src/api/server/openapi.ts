/**
 * Serves `/openapi.json`. It is generated from the schemas that validate requests and
 * serialize responses, so it always matches what the API does.
 */
import swagger from '@fastify/swagger';
import type { FastifyInstance, FastifySchema } from 'fastify';
import { RUN } from '../../runs/run-schema.ts';
import { version } from '../../version.ts';
import { nameSchemas } from '../kit/routes.ts';
import { STATUS_BODY } from '../kit/status-error.ts';

const REFUSED = {
  description: 'Refused',
  content: { 'application/json': { schema: { $ref: 'Error#' } } },
};

const TAGS = [
  { name: 'service', description: 'The source’s own interface' },
  { name: 'exports', description: 'Exports on demand' },
  {
    name: 'mirror',
    description: 'What the mirror knows of itself, and its runs',
  },
  { name: 'health', description: 'Probes and metrics' },
];

/**
 * Adds the route. It describes all tagged routes that are added after it.
 * @param basePath the path prefix under which clients reach the API, or an empty string
 */
export async function addOpenApi(
  server: FastifyInstance,
  basePath: string,
): Promise<void> {
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
      servers: [
        {
          url: basePath === '' ? '/' : basePath,
          description: 'The mirror that this document comes from',
        },
      ],
      tags: TAGS,
      components: {
        securitySchemes: {
          token: {
            type: 'http',
            scheme: 'bearer',
            description: 'API_TOKEN, if it is set',
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
      schema: describeRoute(url, String(route.method), schema),
    }),
  });
  server.get('/openapi.json', () => server.swagger());
}

function describeRoute(
  url: string,
  method: string,
  { produces, response = {}, ...schema }: FastifySchema = {},
): FastifySchema {
  return {
    operationId: operationId(url, method),
    ...schema,
    response: {
      ...describeText(produces),
      ...(response as object),
      '4XX': REFUSED,
      '5XX': { ...REFUSED, description: 'Failed; try again' },
    },
  };
}

/**
 * Describes a response that is not JSON. Fastify does not serialize such a response, so
 * its route has no schema for it.
 */
function describeText(produces: readonly string[] | undefined): object {
  if (produces === undefined) return {};
  const content: Record<string, object> = {};
  for (const type of produces) content[type] = { schema: { type: 'string' } };
  return { 200: { description: 'Success', content } };
}

/** Returns the id of an operation: `GET /mirror/runs/:id` becomes `getMirrorRunsById`. */
function operationId(url: string, method: string): string {
  const path = `${method.toLowerCase()}${url.replaceAll('/:', '/by/')}`;
  return path.replaceAll(/\/(\w)/g, (_match, letter: string) =>
    letter.toUpperCase(),
  );
}
