/**
 * `up` as a user has it: health, the source's interface, exports on demand, the console;
 * ends in 0.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startSandbox, type Sandbox } from '../../support/sandbox.ts';
import { freshDatabase } from '../../support/database.ts';
import type { Child } from '../../support/process.ts';
import { waitFor } from '../../support/wait-for.ts';
import { csvSum } from '../expect-truth.ts';
import { openHome, type MirrorHome } from '../mirror-home.ts';
import { countRows } from '../../support/mirror-state.ts';

const database = await freshDatabase();
let sandbox: Sandbox;
let home: MirrorHome;
let up: Child;
let url = '';

beforeAll(async () => {
  sandbox = await startSandbox({
    parties: 12,
    entriesMean: 60,
    rateLimit: 'none',
  });
  home = await openHome({
    SOURCE_URL: sandbox.url,
    DATABASE_URL: database.url,
    API_PORT: '0',
  });
  up = home.start(['up']);
  const [, found] = await waitFor(
    () => /"url":"(http[^"]+)"[^\n]*"msg":"Serving"/.exec(up.stderr),
    {
      what: 'the API',
    },
  );
  url = found ?? '';
  await waitFor(() => up.stderr.includes('"Working"'), { what: 'the worker' });
});

afterAll(async () => {
  await home[Symbol.asyncDispose]();
  await sandbox.stop();
});

function busiest(): string {
  const ledgers = [...sandbox.truth.parties()].map(({ id }) => ({
    id,
    ...sandbox.truth.party(id),
  }));
  return ledgers.toSorted((a, b) => b.entries - a.entries)[0]?.id ?? '';
}

async function get(path: string): Promise<Response> {
  return fetch(`${url}${path}`);
}

describe('the command up', () => {
  test('reports that it is alive and ready', async () => {
    expect((await get('/healthz')).status).toBe(200);
    expect((await get('/readyz')).status).toBe(200);
    const console = await get('/');
    expect([console.status, console.headers.get('content-type')]).toEqual([
      200,
      expect.stringContaining('text/html'),
    ]);
  });

  test("works a command's run: the command itself asks the source for nothing", async () => {
    const { code, stderr } = await home.run(['sync', 'all']);
    expect(code).toBe(0);
    // The process that works a run says so when it has ended.
    await waitFor(
      () =>
        up.stderr.match(/"kind":"sync"[^\n]*"msg":"Run finished"/g)?.length ===
        2,
      {
        what: 'both syncs to be said to have ended',
      },
    );
    expect(stderr).not.toContain('"Run finished"');
  });

  test("serves the source's parties, page after page", async () => {
    const ids: string[] = [];
    for (let cursor = ''; ;) {
      const page = (await (
        await get(`/api/v2/parties?pagination.first=5${cursor}`)
      ).json()) as {
        parties: {
          edges: { node: { id: string } }[];
          pageInfo: { hasNextPage: boolean; endCursor: string };
        };
      };
      ids.push(...page.parties.edges.map(({ node }) => node.id));
      if (!page.parties.pageInfo.hasNextPage) break;
      cursor = `&pagination.after=${encodeURIComponent(page.parties.pageInfo.endCursor)}`;
    }
    const truth = [...sandbox.truth.parties()].map(({ id }) => id);
    expect(ids.filter((id) => id !== 'network').toSorted()).toEqual(
      truth.toSorted(),
    );
  });

  test('serves the download of an ordered export exactly as the source has it', async () => {
    const partyId = busiest();
    const order = await fetch(`${url}/mirror/exports`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ partyId }),
    });
    expect(order.status).toBe(202);
    const { id } = (await order.json()) as { id: string };
    const done = await waitFor(
      async () => {
        const state = (await (await get(`/mirror/exports/${id}`)).json()) as {
          state: string;
          verdict: string;
        };
        return state.state === 'done' ? state : undefined;
      },
      { what: 'the export' },
    );
    expect(done.verdict).toBe('complete');
    const csv = await (await get(`/mirror/exports/${id}/download`)).text();
    const { entries, digest } = sandbox.truth.party(partyId);
    expect(csvSum(csv)).toEqual({ entries, digest });
  });

  test('serves the same status that the command prints', async () => {
    // The server looks again after a moment: a ledger that was exported just now may
    // not be counted yet.
    const same = await waitFor(
      async () => {
        const served = (await (await get('/mirror/status')).json()) as {
          sentence: string;
        };
        const { document } = await home.json(['status']);
        return served.sentence === document['sentence']
          ? served.sentence
          : undefined;
      },
      { what: 'the same status from both' },
    );
    expect(same).toMatch(/^The mirror is /);
  });

  test('ends in 0 on SIGTERM and leaves nothing running; the next command works by itself', async () => {
    expect(await up.end('SIGTERM')).toEqual({ code: 0, signal: null });
    expect(up.stderr).not.toMatch(/"level":"error"/);
    expect(await countRows(database.pool, 'workers')).toBe(0);
    const { code, stderr } = await home.run(['sync', 'parties']);
    expect(code).toBe(0);
    expect(stderr).toContain('"Run finished"');
  });

  test('has parts, serve and worker, that end in 0 on SIGTERM as well', async () => {
    const children = [home.start(['serve']), home.start(['worker'])];
    const said = [/"msg":"Serving"/, /"msg":"Working"/];
    for (const [index, child] of children.entries()) {
      await waitFor(() => said[index]?.test(child.stderr), { what: 'a start' });
      expect(await child.end('SIGTERM')).toEqual({ code: 0, signal: null });
    }
  });

  test('ends at once on a second signal', async () => {
    const child = home.start(['serve']);
    await waitFor(() => child.stderr.includes('"Serving"'), {
      what: 'a start',
    });
    child.signal('SIGTERM');
    const { code } = await child.end('SIGTERM');
    // Where the first one was enough already, that is fine as well.
    expect([0, 143]).toContain(code);
  });
});
