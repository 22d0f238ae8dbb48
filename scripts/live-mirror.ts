/**
 * Starts a mirror of a sandbox, as users run it, and waits for its first complete night.
 * Used by commands that check a mirror from outside.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ROOT } from './steps.ts';

const READY_MAX_MS = 90_000;

export interface LiveMirror extends AsyncDisposable {
  readonly url: string;
  /** The text of `/metrics` after the night. */
  readonly scraped: string;
  /** The URL of its embedded Postgres. */
  readonly databaseUrl: string;
}

/** @param scratch a folder for the mirror and the sandbox, which the caller removes */
export async function startLiveMirror(scratch: string): Promise<LiveMirror> {
  const children: ChildProcess[] = [];
  const stop = async (): Promise<void> => {
    for (const child of children.toReversed()) {
      if (child.exitCode !== null) continue;
      child.kill('SIGTERM');
      await once(child, 'exit');
    }
  };
  try {
    const sandbox = start(
      ['sandbox', '--port', '0', '--parties', '5', '--entries', '50', '--json'],
      {
        DATA_DIR: join(scratch, 'sandbox'),
      },
    );
    children.push(sandbox);
    let said = '';
    sandbox.stdout?.setEncoding('utf8').on('data', (text: string) => {
      said += text;
    });
    while (!said.includes('"genesis"')) await sleep(100);
    const { url: source } = JSON.parse(said) as { url: string };
    const port = 18_090 + (process.pid % 1_000);
    const up = start(['up'], {
      SOURCE_URL: source,
      DATA_DIR: join(scratch, 'data'),
      API_PORT: String(port),
    });
    children.push(up);
    up.stdout?.resume();
    const url = `http://127.0.0.1:${port}`;
    return {
      url,
      scraped: await untilComplete(url),
      databaseUrl: await databaseOf(join(scratch, 'data/postgres')),
      [Symbol.asyncDispose]: stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

function start(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): ChildProcess {
  return spawn(process.execPath, ['bin/ledger-mirror.js', ...args], {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}

async function databaseOf(folder: string): Promise<string> {
  const password = await readFile(join(folder, 'password'), 'utf8');
  const [, , , port = ''] = (
    await readFile(join(folder, 'cluster/postmaster.pid'), 'utf8')
  ).split('\n');
  return `postgresql://ledger_mirror:${password.trim()}@127.0.0.1:${port.trim()}/postgres`;
}

async function untilComplete(url: string): Promise<string> {
  const limitMs = performance.now() + READY_MAX_MS;
  for (;;) {
    const text = await fetch(`${url}/metrics`).then(
      (answer) => answer.text(),
      () => '',
    );
    if (text.includes('last_success_timestamp_seconds{kind="nightly"}'))
      return text;
    if (performance.now() > limitMs)
      throw new Error(`no complete night within ${READY_MAX_MS / 1000} s`);
    await sleep(1_000);
  }
}
