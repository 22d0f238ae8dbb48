/**
 * The embedded Postgres on a volume that two containers share: each container sees its
 * own processes only, and its loopback is not the other's. `unshare` makes such a world
 * on one machine; it needs root and the right to make namespaces.
 */
import { spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Child, runScript } from '../support/process.ts';
import { waitFor } from '../support/wait-for.ts';
import { ask, postmasterPid, processState } from './observe-server.ts';

const HOLDER = fileURLToPath(new URL('holder.ts', import.meta.url));
const NAMESPACES = [
  '--pid',
  '--ipc',
  '--net',
  '--fork',
  '--kill-child',
  '--mount-proc',
];

const BIN = resolve(import.meta.dirname, '../../bin/ledger-mirror.js');

/** Why this machine lets nobody make namespaces; undefined if it does. */
const unshareProblem = findUnshareProblem();

let dataDir = '';

beforeEach(() => {
  dataDir = mkdtempSync(join(tmpdir(), 'ledger-mirror-namespaces-'));
});

afterEach(() => {
  rmSync(dataDir, { recursive: true, force: true });
});

describe.skipIf(unshareProblem !== undefined)(
  'a data folder that two containers share',
  () => {
    test('status in a second container ends in one line and exit 1, and touches nothing', async () => {
      await using first = runScript(HOLDER, [dataDir]);
      const [, url = ''] = await first.waitForLine(/^url (.+)$/m);
      await ask(url, 'create table kept as select 7 as n');
      const before = filesOfServer();

      await using second = new Child(
        'unshare',
        [...NAMESPACES, process.execPath, BIN, 'status'],
        { cwd: dataDir, env: { DATA_DIR: dataDir } },
      );
      expect(await second.end(undefined, 60_000)).toMatchObject({ code: 1 });

      const said = second.stderr.trim().split('\n');
      expect(said).toEqual([expect.stringContaining('docker exec')]);
      expect(filesOfServer()).toEqual(before);
      expect(await ask(url, 'select n from kept')).toEqual([{ n: 7 }]);
      expect(await first.end('SIGTERM')).toEqual({ code: 0, signal: null });
    });

    test('is refused to the second while a command of the first uses it', async () => {
      await using first = runScript(HOLDER, [dataDir]);
      const [, url = ''] = await first.waitForLine(/^url (.+)$/m);
      await ask(url, 'create table kept as select 7 as n');
      const before = filesOfServer();

      await using second = runInContainer();
      const [line] = await second.waitForLine(/^failed .+$/m);

      expect(line).toContain('EMBEDDED_IN_USE');
      expect(line).toContain('docker exec');
      expect(filesOfServer()).toEqual(before);
      expect(await ask(url, 'select n from kept')).toEqual([{ n: 7 }]);
      expect(await first.end('SIGTERM')).toEqual({ code: 0, signal: null });
    });

    test('is refused to the first while a command of the second uses it', async () => {
      await using container = runInContainer();
      await container.waitForLine(/^url .+$/m);
      const before = filesOfServer();

      await using outside = runScript(HOLDER, [dataDir]);
      await outside.waitForLine(/^failed EMBEDDED_IN_USE .+$/m);
      await outside.end();

      expect(filesOfServer()).toEqual(before);
      await using inside = runScript(HOLDER, [dataDir]);
      await inside.waitForLine(/^failed EMBEDDED_IN_USE .+$/m);
    });

    test('is refused while a server runs there whose commands were all killed', async () => {
      const first = runScript(HOLDER, [dataDir]);
      await first.waitForLine(/^url .+$/m);
      await first.end('SIGKILL');
      const pid = postmasterPid(dataDir);
      const before = filesOfServer();

      await using second = runInContainer();
      await second.waitForLine(/^failed EMBEDDED_IN_USE .+$/m);
      await second.end();

      expect(filesOfServer()).toEqual(before);
      expect(processState(pid)?.state).toBe('S');
      // A command beside the server takes it over, and stops it at its end.
      await using heir = runScript(HOLDER, [dataDir]);
      await heir.waitForLine(/^url .+$/m);
      expect(postmasterPid(dataDir)).toBe(pid);
      await heir.end('SIGTERM');
      expect(processState(pid)?.state ?? 'Z').toBe('Z');
    });

    test('is refused while the first is about to restart its killed server', async () => {
      await using first = runScript(HOLDER, [dataDir]);
      await first.waitForLine(/^url .+$/m);
      first.signal('SIGSTOP');
      const killed = postmasterPid(dataDir);
      process.kill(killed, 'SIGKILL');
      await waitFor(() => (processState(killed)?.state ?? 'Z') === 'Z', {
        what: 'end of the server',
      });

      await using second = runInContainer();
      await second.waitForLine(/^failed EMBEDDED_IN_USE .+$/m);
      await second.end();

      first.signal('SIGCONT');
      await first.waitForLine(/had stopped, and is running again/m);
      expect(await first.end('SIGTERM')).toEqual({ code: 0, signal: null });
    });

    test('is taken over, rows and all, when the first container is gone', async () => {
      const first = runInContainer();
      await first.waitForLine(/^url .+$/m);
      // As `docker kill` does: the first process of the container takes the others along.
      await first.end('SIGKILL');

      await using second = runInContainer();
      await second.waitForLine(/^url .+$/m);
      await second.end('SIGKILL');
      await using outside = runScript(HOLDER, [dataDir]);
      await outside.waitForLine(/^url .+$/m);
      expect(await outside.end('SIGTERM')).toEqual({ code: 0, signal: null });
      expect(existsSync(join(dataDir, 'postgres', 'running.json'))).toBe(false);
    });

    test('is refused while another machine says that it uses it', async () => {
      await using first = runScript(HOLDER, [dataDir]);
      await first.waitForLine(/^url .+$/m);
      await first.end('SIGTERM');
      const record = join(dataDir, 'postgres', 'running.json');
      const elsewhere = {
        bootId: 'b',
        pidNamespace: 'pid:[1]',
        host: 'far-away',
      };
      const write = (): void =>
        writeFileSync(
          record,
          JSON.stringify({ ...elsewhere, startedAt: 'then' }),
        );
      write();
      const beats = setInterval(write, 1_000);
      try {
        await using second = runScript(HOLDER, [dataDir]);
        const [line] = await second.waitForLine(/^failed EMBEDDED_IN_USE .+$/m);
        expect(line).toContain('far-away');
      } finally {
        clearInterval(beats);
      }

      // The other machine is gone: its record is as old as it was.
      await using third = runScript(HOLDER, [dataDir]);
      await third.waitForLine(/^url .+$/m);
      await third.end('SIGTERM');
    });
  },
);

function findUnshareProblem(): string | undefined {
  const tried = spawnSync('unshare', [...NAMESPACES, 'true'], {
    encoding: 'utf8',
  });
  if (tried.status === 0) return undefined;
  const problem = tried.error?.message ?? tried.stderr.trim();
  process.stderr.write(
    `Shared data folders of the embedded Postgres are not tested here: ${problem}\n`,
  );
  return problem;
}

function runInContainer(): Child {
  return new Child('unshare', [
    ...NAMESPACES,
    process.execPath,
    HOLDER,
    dataDir,
  ]);
}

/** What a refused command must leave as it is. */
function filesOfServer(): string[] {
  const home = join(dataDir, 'postgres');
  return ['cluster/postmaster.pid', 'server.log'].map((name) =>
    readFileSync(join(home, name), 'utf8'),
  );
}
