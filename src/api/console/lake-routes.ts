/** The Data view's questions to the lake: tables, ready questions, SQL, and results as files. */
import type { FastifyInstance } from 'fastify';
import { goneSignal } from '../http/answer/gone.ts';
import { hideRoute } from '../http/schemas.ts';
import { FILE, type FileFormat, type LakeQueries, type LakeQuestion, QUESTION } from './lake-queries.ts';

const TYPES: Readonly<Record<FileFormat, string>> = {
  csv: 'text/csv; charset=utf-8',
  parquet: 'application/vnd.apache.parquet',
};

/** Adds the routes. What a statement may do is decided where it runs: it reads the lake and nothing else. */
export function addLakeRoutes(server: FastifyInstance, lake: LakeQueries): void {
  server.get('/console/tables', hideRoute(), async () => ({ tables: await lake.tables() }));
  server.get('/console/questions', hideRoute(), () => ({ questions: lake.questions }));
  server.post<{ Body: LakeQuestion }>('/console/query', hideRoute({ body: QUESTION }), (request, reply) =>
    lake.ask(request.body, goneSignal(reply)),
  );
  server.post<{ Body: LakeQuestion; Querystring: { format: FileFormat } }>(
    '/console/query/file',
    hideRoute({ body: QUESTION, querystring: FILE }),
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
