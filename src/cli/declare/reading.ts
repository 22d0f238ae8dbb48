/** The commands that read what is mirrored: checks, the lake, SQL. */
import type { Command } from 'commander';
import type { Run } from '../execute.ts';
import { wholeNumber } from './whole-number.ts';

export function declareReading(program: Command, run: Run): void {
  program
    .command('verify')
    .description('check everything recorded as published or loaded against its sums')
    .option('--deep', 'also every row of the warehouse and the lake', false)
    .option('--against <report>', 'compare with the report of a nightly run: a file, its key, or the run id')
    .action((options) => run(async () => (await import('../commands/verify.ts')).verify, options));
  declareLake(program, run);
  program
    .command('query')
    .description('read-only SQL over the lake (entries, parties, checkpoints)')
    .argument('[sql]', 'the SQL, or the name of a ready question; without it a prompt')
    .option('--list', 'the ready questions', false)
    .option(
      '--format <format>',
      'table, csv, json, ndjson or parquet; by default what --output ends in, or table',
    )
    .option('--output <file>', 'write the result to a file, which appears when it is complete')
    .option('--timeout <seconds>', 'time limit', wholeNumber(1, 86_400), 60)
    .option('--since <time>', 'for a ready question: entries from this time on')
    .option('--until <time>', 'for a ready question: entries before this time')
    .option('--party <id>', 'for a ready question: one party')
    .option('--asset <id>', 'for a ready question: one asset')
    .action((sql: string | undefined, options) =>
      run(async () => (await import('../commands/query/query.ts')).query, { sql, ...options }),
    );
}

function declareLake(program: Command, run: Run): void {
  const lake = program
    .command('lake')
    .description('the tables of the lake: versions, files, bytes; takes broken checkpoints away')
    .action(() => run(async () => (await import('../commands/lake.ts')).lake, {}));
  lake
    .command('vacuum')
    .description('remove what no version names any more, after LAKE_RETENTION')
    .action(() => run(async () => (await import('../commands/lake.ts')).lakeVacuum, {}));
  lake
    .command('restore')
    .description('make the lake what it was, until the next load')
    .argument('<version>', "the moment's number, as `lake` shows it")
    .action((version: string) =>
      run(async () => (await import('../commands/lake.ts')).lakeRestore, { version }),
    );
}
