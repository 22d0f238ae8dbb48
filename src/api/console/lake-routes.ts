/** The Data view's questions to the lake: tables, ready questions, SQL, and results as files. */
import type { FastifyInstance } from 'fastify';
import { FILE_FORMATS, type FileFormat, type LakeQueries, type LakeQuestion } from './lake-queries.ts';

const HIDDEN = { hide: true } as const;
const SQL_CHARACTERS_MAX = 12_000;
const OPTION = { type: 'string', minLength: 1, maxLength: 200 } as const;
const QUESTION = {
  type: 'object',
  properties: {
    sql: { type: 'string', minLength: 1, maxLength: SQL_CHARACTERS_MAX },
    question: { type: 'string', pattern: '^[a-z][a-z-]{1,40}$' },
    options: {
      type: 'object',
      properties: { since: OPTION, until: OPTION, party: OPTION, asset: OPTION },
      additionalProperties: false,
    },
  },
  oneOf: [{ required: ['sql'] }, { required: ['question'] }],
  additionalProperties: false,
} as const;
const FILES: Readonly<Record<FileFormat, { readonly type: string; readonly ending: string }>> = {
  csv: { type: 'text/csv; charset=utf-8', ending: 'csv' },
  parquet: { type: 'application/vnd.apache.parquet', ending: 'parquet' },
};

/** Adds the routes. What a statement may do is decided where it runs: it reads the lake and nothing else. */
export function addLakeRoutes(server: FastifyInstance, desk: LakeQueries): void {
  server.get('/console/tables', { schema: HIDDEN }, async () => ({ tables: await desk.tables() }));
  server.get('/console/questions', { schema: HIDDEN }, () => ({ questions: desk.questions }));
  server.post<{ Body: LakeQuestion }>(
    '/console/query',
    { schema: { ...HIDDEN, body: QUESTION } },
    async (request, reply) => {
      const gone = new AbortController();
      reply.raw.once('close', () => gone.abort());
      return desk.ask(request.body, gone.signal);
    },
  );
  server.post<{ Body: LakeQuestion; Querystring: { format: FileFormat } }>(
    '/console/query/file',
    {
      schema: {
        ...HIDDEN,
        body: QUESTION,
        querystring: {
          type: 'object',
          properties: { format: { type: 'string', enum: FILE_FORMATS } },
          required: ['format'],
        },
      },
    },
    async (request, reply) => {
      const { type, ending } = FILES[request.query.format];
      const gone = new AbortController();
      const file = await desk.file(request.body, request.query.format, gone.signal);
      reply.raw.once('close', () => {
        gone.abort();
        file.destroy();
      });
      reply.headers({
        'content-type': type,
        'content-disposition': `attachment; filename="${fileName(request.body)}.${ending}"`,
      });
      return reply.send(file);
    },
  );
}

/** What was asked, and the day of the answer. */
function fileName(question: LakeQuestion): string {
  const asked = 'question' in question ? question.question : 'query';
  return `${asked}-${new Date().toISOString().slice(0, 10)}`;
}
