/** The Data view's questions to the lake: tables, ready questions, SQL, and results as files. */
import type { FastifyInstance } from 'fastify';
import { goneSignal } from '../http/gone.ts';
import { HIDDEN, taken } from '../http/schemas.ts';
import { FILE_FORMATS, type FileFormat, type LakeQueries, type LakeQuestion } from './lake-queries.ts';

const SQL_CHARACTERS_MAX = 12_000;
const OPTION = { type: 'string', minLength: 1, maxLength: 200 } as const;
const QUESTION = {
  ...taken({
    sql: { type: 'string', minLength: 1, maxLength: SQL_CHARACTERS_MAX },
    question: { type: 'string', pattern: '^[a-z][a-z-]{1,40}$' },
    options: taken({ since: OPTION, until: OPTION, party: OPTION, asset: OPTION }),
  }),
  oneOf: [{ required: ['sql'] }, { required: ['question'] }],
};
const TYPES: Readonly<Record<FileFormat, string>> = {
  csv: 'text/csv; charset=utf-8',
  parquet: 'application/vnd.apache.parquet',
};

/** Adds the routes. What a statement may do is decided where it runs: it reads the lake and nothing else. */
export function addLakeRoutes(server: FastifyInstance, lake: LakeQueries): void {
  server.get('/console/tables', { schema: HIDDEN }, async () => ({ tables: await lake.tables() }));
  server.get('/console/questions', { schema: HIDDEN }, () => ({ questions: lake.questions }));
  server.post<{ Body: LakeQuestion }>(
    '/console/query',
    { schema: { ...HIDDEN, body: QUESTION } },
    (request, reply) => lake.ask(request.body, goneSignal(reply)),
  );
  server.post<{ Body: LakeQuestion; Querystring: { format: FileFormat } }>(
    '/console/query/file',
    {
      schema: {
        ...HIDDEN,
        body: QUESTION,
        querystring: taken({ format: { type: 'string', enum: FILE_FORMATS } }, ['format']),
      },
    },
    async (request, reply) => {
      const { format } = request.query;
      const gone = goneSignal(reply);
      const file = await lake.file(request.body, format, gone);
      gone.addEventListener('abort', () => file.destroy());
      reply.headers({
        'content-type': TYPES[format],
        'content-disposition': `attachment; filename="${fileName(request.body)}.${format}"`,
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
