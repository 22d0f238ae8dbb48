/** The commands that go on until they are told to stop. */
import { Option, type Command } from 'commander';
import { RELEASE_NAMES } from '../../sandbox/release-names.ts';
import type { Run } from '../execute.ts';
import { wholeNumber } from './whole-number.ts';

export function declareServing(program: Command, run: Run): void {
  const up = async () => (await import('../commands/serving/up.ts')).up;
  program
    .command('demo')
    .description('mirror a sandbox network with everything embedded, verify it, answer three questions')
    .option('--keep', 'leave it running with the console open', false)
    .action((options) => run(async () => (await import('../commands/demo/demo.ts')).demo, options));
  program
    .command('up')
    .description('workers, schedules, read API and console in one process')
    .action(() => run(up, { worker: true, api: true }));
  program
    .command('worker')
    .description('only workers and schedules')
    .action(() => run(up, { worker: true, api: false }));
  program
    .command('serve')
    .description('only the read API and the console')
    .action(() => run(up, { worker: false, api: true }));
  program
    .command('sandbox')
    .description('serve a made-up network, for trying things out')
    .option('--host <host>', 'where to listen; 0.0.0.0: on all addresses', '127.0.0.1')
    .option('--port <port>', 'its port (0: a free one)', wholeNumber(0, 65_535), 8090)
    .option(
      '--parties <n>',
      'how many parties there are a week after its genesis; more arrive later',
      wholeNumber(1, 10_000_000),
      200,
    )
    .option(
      '--entries <n>',
      'entries a week after its genesis, roughly (up to twice as many); more follow',
      wholeNumber(0, 1_000_000_000),
      50_000,
    )
    .option('--seed <seed>', 'the same seed and genesis, the same network', 'sandbox')
    .addOption(
      new Option('--release <name>', 'whose exports it serves: columns, filters and order')
        .choices(RELEASE_NAMES)
        .default('0.71.4'),
    )
    .option(
      '--genesis <time>',
      'when it began; default: a week before its first start, kept in DATA_DIR/sandbox.json',
    )
    .action((options) => run(async () => (await import('../commands/serving/sandbox.ts')).sandbox, options));
}
