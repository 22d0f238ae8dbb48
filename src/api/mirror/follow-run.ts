/** A run as it goes on. */
import { setTimeout as sleep } from 'node:timers/promises';
import { isOver } from '../../runs/run-document.ts';
import type { RunDocument } from '../../runs/run-schema.ts';

const POLL_MS = 250;

/** What `read` gives now, then each change, until the run has ended, the signal aborts or there is none. */
export async function* followRun<Told extends Pick<RunDocument, 'state'>>(
  read: () => Promise<Told | undefined>,
  signal: AbortSignal,
): AsyncGenerator<Told> {
  for (let last = ''; !signal.aborted;) {
    const now = await read();
    if (now === undefined) return;
    const text = JSON.stringify(now);
    if (text !== last) yield now;
    if (isOver(now)) return;
    last = text;
    await sleep(POLL_MS, undefined, { signal }).catch(() => undefined);
  }
}
