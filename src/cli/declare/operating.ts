/** The commands for those who operate a mirror: how it stands, its runs, and whether it is set up right. */
import type { Command } from 'commander';
import type { Run } from '../execute.ts';
import { wholeNumber } from './whole-number.ts';

export function declareOperating(program: Command, run: Run): void {
  program
    .command('status')
    .description('is the mirror complete, how fresh is it, what needs a person')
    .option('--watch', 'go on showing it until told to stop', false)
    .option('--check', 'end with exit code 2 where the mirror is not complete', false)
    .action((options) => run(async () => (await import('../commands/status.ts')).status, options));
  program
    .command('cancel')
    .description('end a run of any kind at its next safe point')
    .argument('<run>', 'its id')
    .action((runId: string) =>
      run(async () => (await import('../commands/runs/cancel.ts')).cancel, { runId }),
    );
  program
    .command('runs')
    .description('what ran and how it ended')
    .argument('[run]', 'one run, with its evidence')
    .option('--limit <n>', 'how many', wholeNumber(1, 1_000), 20)
    .action((runId: string | undefined, options) =>
      run(async () => (await import('../commands/runs/runs.ts')).runs, { runId, ...options }),
    );
  program
    .command('logs')
    .description("a run's log lines")
    .argument('<run>', 'its id')
    .action((runId: string) => run(async () => (await import('../commands/runs/logs.ts')).logs, { runId }));
  program
    .command('doctor')
    .description('check the configuration and everything it points to')
    .action((options) => run(async () => (await import('../commands/doctor.ts')).doctor, options));
  program
    .command('migrate')
    .description("bring the warehouse's schema forward")
    .action((options) => run(async () => (await import('../commands/migrate.ts')).migrateCommand, options));
}
