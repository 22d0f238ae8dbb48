/**
 * The console's access to the lake: it runs `ledger-mirror query` and `lake` in child
 * processes.
 */
import { getCompileCacheDir } from 'node:module';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openCommandProcesses } from '../../api/console/command-processes.ts';
import {
  ENDED_AFTER_MS,
  type LakeQueries,
  openQueryRunner,
} from '../../api/console/lake-queries.ts';
import type { Config } from '../../config/environment.ts';
import { sharedLoad } from '../../concurrency/shared-load.ts';
import { objectsAt, scratchDirOf } from '../data-dir.ts';
import { READY_QUESTIONS } from '../../lake/query/questions.ts';
import { queryColumns, SHAPES } from '../../lake/tables/tables.ts';

const MAIN = fileURLToPath(new URL('../../main.ts', import.meta.url));
const QUERY_PROCESS = fileURLToPath(
  new URL('../../query-process.ts', import.meta.url),
);
/**
 * How long the list of tables is cached. Reading it may take several seconds, and it
 * changes only a few times a day.
 */
const TABLES_MAX_AGE_MS = 15_000;

/** Tables that the warehouse has under the same name. */
const IN_POSTGRES: ReadonlySet<string> = new Set([
  'ledger_entries',
  'parties',
  'checkpoints',
]);

/** A table in the output of `lake --json`. */
interface Overview {
  readonly table: keyof typeof SHAPES;
  readonly path: string;
}

/** Opens the lake for the console. Disposing of it ends its processes. */
export function openConsoleLake(config: Config): LakeQueries & AsyncDisposable {
  const compiled = getCompileCacheDir();
  const env = {
    ...config.ambient,
    // Let the child processes reuse the code that this process has compiled, which halves
    // the time that they take to start.
    ...(compiled !== undefined && { NODE_COMPILE_CACHE: dirname(compiled) }),
    OBJECT_STORE_URL: objectsAt(config).href,
    DATA_DIR: config.dataDir,
    HOME: config.dataDir,
    ...(config.texts.assetsFile !== undefined && {
      ASSETS_FILE: config.texts.assetsFile,
    }),
    LOG_LEVEL: 'error',
    NO_COLOR: '1',
  };
  const processes = openCommandProcesses({
    command: [process.execPath, QUERY_PROCESS],
    env,
    timeoutMs: ENDED_AFTER_MS,
  });
  const runner = openQueryRunner({
    command: [process.execPath, MAIN],
    processes,
    env,
    scratchDir: scratchDirOf(config),
  });
  return {
    tables: sharedLoad(async () => {
      const found = (await runner.document('lake')) as {
        readonly tables: readonly Overview[];
      };
      return found.tables.map(describeTable);
    }, TABLES_MAX_AGE_MS),
    questions: READY_QUESTIONS.map(({ name, title, parameters }) => ({
      name,
      title,
      parameters,
    })),
    ask: (question, signal) => runner.ask(question, signal),
    file: (question, format, signal) => runner.file(question, format, signal),
    [Symbol.asyncDispose]: () => processes[Symbol.asyncDispose](),
  };
}

function describeTable({ table, path, ...facts }: Overview) {
  const { description } = SHAPES[table];
  const local = path.startsWith('file:') ? fileURLToPath(path) : path;
  return {
    ...facts,
    name: table,
    comment: description,
    columns: queryColumns(table).map(({ name, type, comment }) => ({
      name,
      type,
      comment,
    })),
    access: [
      {
        engine: 'DuckDB',
        line: `install delta; load delta; from delta_scan('${local}') limit 10`,
      },
      {
        engine: 'Python',
        line: `deltalake.DeltaTable('${local}').to_pandas()`,
      },
      {
        engine: 'Spark',
        line: `spark.read.format('delta').load('${local.replace(/^s3:/, 's3a:')}')`,
      },
      ...(IN_POSTGRES.has(table)
        ? [{ engine: 'psql', line: `select * from mirror.${table} limit 10` }]
        : []),
    ],
  };
}
