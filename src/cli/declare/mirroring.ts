/** The commands that ask the source, or bring what it said further. */
import { Argument, type Command } from 'commander';
import type { SyncOptions } from '../commands/sync.ts';
import type { Run } from '../execute.ts';

export function declareMirroring(program: Command, run: Run): void {
  program
    .command('sync')
    .description('bring the lists up to date now and wait')
    .addArgument(new Argument('<what>', 'which lists').choices(['parties', 'checkpoints', 'all']))
    .option('--full', 'audit: every page again', false)
    .option('--party <id>', 'look one party up')
    .option('--accept-new-network', 'the source now serves another network: start a new epoch', false)
    .option('--accept-shrunk', 'the source serves many rows no longer, and that is right', false)
    .action((what: SyncOptions['what'], options) =>
      run(async () => (await import('../commands/sync.ts')).sync, { what, ...options }),
    );
  program
    .command('export')
    .description("export one party's ledger entries now and wait")
    .requiredOption('--party <id>', 'the party, as the source lists it')
    .option('--asset <id>', 'one asset only')
    .option('--from <time>', 'RFC 3339, or a day (midnight UTC); default: from the beginning')
    .option('--to <time>', 'likewise, exclusive; default: up to the present')
    .option('--out <file>', 'also write the assembled CSV to a file, or - for stdout')
    .option('--again', 'distrust what is covered in that range, and ask for it anew', false)
    .option('--no-load', 'leave loading to the next nightly run')
    .action((options) => run(async () => (await import('../commands/export.ts')).exportParty, options));
  program
    .command('nightly')
    .description('the scheduled run, now: lists, exports, load, lake, verify')
    .option('--dry-run', 'only print what it would ask the source', false)
    .action((options) => run(async () => (await import('../commands/nightly.ts')).nightly, options));
  program
    .command('load')
    .description('bring published objects into the warehouse and the lake, without the source')
    .option('--all', 'also rebuild the manifest from the objects first', false)
    .action((options) => run(async () => (await import('../commands/load.ts')).load, options));
}
