/** A worker from which the processor is taken away for longer than it may be silent. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { World } from '../export-world.ts';
import { LARGE, NOW } from './killed-case.ts';
import { row12 } from '../ledger-double.ts';

const database = await freshDatabase({ isMigrated: true });
/** Three times what a process that is gone may be silent. */
const STARVED_MS = 30_000;

test('a starved worker keeps its export: nobody does it a second time, and nothing of it is thrown away', async () => {
  await using world = await World.open(database);
  world.source.entries = LARGE;
  const script = fileURLToPath(new URL('starved-worker.ts', import.meta.url));
  const child = spawn(process.execPath, [script, database.url, world.folder], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  try {
    const lines = createInterface({ input: child.stdout })[
      Symbol.asyncIterator
    ]();
    expect((await lines.next()).value).toBe('asked');
    child.kill('SIGSTOP');
    const other = world.export(NOW);
    await sleep(STARVED_MS);
    expect(world.source.asked).toHaveLength(0);
    child.kill('SIGCONT');
    child.stdin.write('go\n');
    expect((await lines.next()).value).toBe('complete 1');
    await other;
    // Only the present is asked for, and it is asked for each time.
    expect(world.source.asked.filter(({ from }) => from === undefined)).toEqual(
      [],
    );
    expect(await world.rows()).toEqual(LARGE.map(row12).toSorted());
  } finally {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null)
      await once(child, 'exit');
  }
});
