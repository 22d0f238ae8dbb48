/**
 * A database put back from a backup, through the real commands: what was published since
 * is taken over, nothing is deleted.
 */
import { execFileSync } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { existsSync } from 'node:fs';
import { expect, test } from 'vitest';
import { filesBelow, openHome } from '../../cli/mirror-home.ts';
import { HOUR, makeLedger, type Entry } from '../../exports/hostile/ledger.ts';
import {
  declare,
  honestAnswer,
  type Phase,
  WHOLE,
} from '../../exports/hostile/cases/case.ts';
import { startHostileSource } from '../../exports/hostile/start.ts';
import { waitFor } from '../../support/wait-for.ts';

const NIGHTS = [-72, -48, -24, 0];

/** The server's files belong to an account of its own where we are root. */
function copy(from: string, to: string): void {
  execFileSync('cp', ['-a', from, to]);
}

/** What there is at a night of so many hours before the end. */
function phase(
  clock: number,
): Pick<Phase, 'clock' | 'truth' | 'answer' | 'expected'> {
  const truth = (now: bigint, party: string): Entry[] =>
    makeLedger(now, { seed: 'backup', party, fromHours: 240 }).filter(
      ({ time }) => time < now + BigInt(clock) * HOUR,
    );
  return { clock, truth, answer: honestAnswer, expected: WHOLE };
}

test('a database restored from a backup knows after the next nightly run what was published since', async () => {
  const [first, ...others] = NIGHTS.map(phase);
  const one = {
    ...declare('backup', 'a ledger that grows', honestAnswer, WHOLE, first),
    followedBy: others,
  };
  const host = await startHostileSource({ cases: [one] });
  await using home = await openHome({
    SOURCE_URL: host.url,
    DATABASE_URL: undefined,
  });
  const cluster = join(home.dataDir, 'postgres');
  const stopped = (): Promise<unknown> =>
    waitFor(() => !existsSync(join(cluster, 'cluster', 'postmaster.pid')), {
      what: 'Postgres to stop',
    });
  const night = async (): Promise<void> => {
    const { code, document, stderr } = await home.json(['nightly']);
    expect([code, document.verdict, code === 0 ? '' : stderr]).toEqual([
      0,
      'complete',
      '',
    ]);
    await stopped();
  };
  const objects = async (): Promise<string[]> =>
    (await filesBelow(join(home.objectsDir, 'ledger'))).toSorted();
  try {
    await night();
    host.advance('backup');
    await night();
    const backup = join(home.dir, 'backup');
    copy(cluster, backup);
    host.advance('backup');
    await night();
    const published = await objects();
    host.advance('backup');
    await rm(cluster, { recursive: true });
    copy(backup, cluster);
    const asked = host.requests.length;
    await night();
    // What the lost night had published is neither asked for again, nor removed.
    expect(
      host.requests.slice(asked).map(({ from }) => from !== undefined),
    ).toEqual([true]);
    expect(await objects()).toEqual(expect.arrayContaining(published));
    const counted = await home.json([
      'query',
      'select count(*)::varchar as rows from ledger_entries',
    ]);
    expect(counted.document['rows']).toEqual([
      { rows: `${host.truth('backup').length}` },
    ]);
    expect((await home.run(['verify', '--deep'])).code).toBe(0);
  } finally {
    await host.close();
  }
});
