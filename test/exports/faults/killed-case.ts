/** What the killed worker and its successor both export. */
import { join } from 'node:path';
import { Child } from '../../support/process.ts';
import { entries } from '../ledger-double.ts';

/** A closed segment, and an open one. */
export const LARGE = entries('2023-05-01T10:00:00Z', 1500, 10);
export const NOW = '2023-05-01T14:00:00Z';

const WORKER = join(import.meta.dirname, 'killed-worker.ts');

/** Runs a worker that kills itself when it reaches a step for the nth time. */
export async function killAt(
  world: { folder: string },
  databaseUrl: string,
  step: string,
  nth: number,
): Promise<void> {
  await using child = new Child(process.execPath, [
    WORKER,
    databaseUrl,
    world.folder,
    step,
    String(nth),
  ]);
  const exit = await child.end();
  if (exit.signal !== 'SIGKILL')
    throw new Error(`the worker was not killed: ${child.stderr}`);
}
