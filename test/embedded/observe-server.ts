/** Looking at an embedded server from outside. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Client } from 'pg';

export interface ProcessState {
  /** `S` sleeping, `Z` zombie, … */
  readonly state: string;
  readonly session: number;
  readonly uid: number;
}

/** @returns undefined if no such process is left */
export function processState(pid: number): ProcessState | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state = '', , , session] = stat
      .slice(stat.lastIndexOf(')') + 2)
      .split(' ');
    const uid = /^Uid:\s+(\d+)/m.exec(
      readFileSync(`/proc/${pid}/status`, 'utf8'),
    )?.[1];
    return { state, session: Number(session), uid: Number(uid) };
  } catch {
    return undefined;
  }
}

/** The pid that the server of this folder wrote down. */
export function postmasterPid(dataDir: string): number {
  return Number(
    readFileSync(
      join(dataDir, 'postgres', 'cluster', 'postmaster.pid'),
      'utf8',
    ).split('\n')[0],
  );
}

export async function ask(
  url: string,
  statement: string,
): Promise<Record<string, unknown>[]> {
  const client = new Client({
    connectionString: url,
    connectionTimeoutMillis: 5_000,
  });
  // The tests kill the server under it.
  client.on('error', () => undefined);
  await client.connect();
  try {
    const { rows } = await client.query<Record<string, unknown>>(statement);
    return rows;
  } finally {
    await client.end();
  }
}
