/** Against the sandbox network: the interface as the service really speaks it. */
import { expect, onTestFinished, test } from 'vitest';
import { startSandbox, type Sandbox } from '../support/sandbox.ts';
import type { SandboxOptions } from '../support/sandbox.ts';
import type { ListName, Page } from '../../src/lists/ports.ts';
import {
  failureOf,
  NEVER,
  testSource,
  textOf,
  type TestSource,
} from './test-source.ts';

const OPTIONS: SandboxOptions = {
  parties: 120,
  entriesMean: 30,
  rateLimit: 'none',
};

async function sandboxSource(
  options: SandboxOptions = {},
): Promise<{ sandbox: Sandbox; source: TestSource }> {
  const sandbox = await startSandbox({ ...OPTIONS, ...options });
  onTestFinished(() => sandbox.stop());
  return { sandbox, source: testSource(new URL(sandbox.url)) };
}

async function everyPage(source: TestSource, list: ListName): Promise<Page[]> {
  const pages: Page[] = [];
  let after: string | undefined;
  do {
    const page: Page = await source.lists.page(
      { list, newestFirst: true, size: 50, after },
      NEVER,
    );
    pages.push(page);
    after = page.hasNextPage ? page.endCursor : undefined;
  } while (after !== undefined && pages.length < 100);
  return pages;
}

test('both lists of the sandbox are read with their height', async () => {
  const { source } = await sandboxSource();
  const pages = await everyPage(source, 'parties');
  const keys = pages.flatMap((page) => page.rows.map((row) => row.key));
  expect(new Set(keys).size).toBe(keys.length);
  expect(keys).toContain('network');
  expect(keys).toHaveLength(121);
  expect(
    pages.every(
      (page) => page.blockHeight !== undefined && page.blockTime !== undefined,
    ),
  ).toBe(true);
  const [checkpoints] = await everyPage(source, 'checkpoints');
  expect(checkpoints?.rows).toHaveLength(50);
  expect(
    checkpoints?.rows.every(
      (row) => row.extra === undefined && /^\d+\//.test(row.key),
    ),
  ).toBe(true);
});

test('the lookup finds a party of the sandbox and no other', async () => {
  const { source } = await sandboxSource();
  const [page] = await everyPage(source, 'parties');
  const key = page?.rows[1]?.key ?? '';
  expect((await source.lists.party(key, NEVER))?.key).toBe(key);
  expect((await source.lists.party('network', NEVER))?.key).toBe('network');
  expect(await source.lists.party('00'.repeat(32), NEVER)).toBeUndefined();
});

test('an invalid cursor is reported as one, whatever status the sandbox answers', async () => {
  const { source } = await sandboxSource();
  for (const after of ['!', Buffer.from('not json').toString('base64')]) {
    const question = {
      list: 'checkpoints',
      newestFirst: true,
      size: 10,
      after,
    } as const;
    expect(await failureOf(source.lists.page(question, NEVER))).toMatchObject({
      code: 'CURSOR_REFUSED',
    });
  }
});

test('an export of the sandbox is the same CSV in every form', async () => {
  const lines: string[][] = [];
  for (const form of ['csv', 'messages'] as const) {
    const { source } = await sandboxSource({ form });
    const [page] = await everyPage(source, 'parties');
    const partyId = page?.rows.at(-1)?.key ?? '';
    await using answer = await source.ledger.ask({ partyId, from: 0n }, NEVER);
    const text = await textOf(answer.chunks);
    expect(answer.form()).toBe(form);
    expect(text.endsWith('\n')).toBe(true);
    lines.push(text.split('\n').toSorted());
  }
  expect(lines[0]?.length).toBeGreaterThan(1);
  expect(lines[0]).toEqual(lines[1]);
});

test('a refusal of the sandbox is reported in its own words', async () => {
  const { source } = await sandboxSource({ assetRequired: true });
  const [page] = await everyPage(source, 'parties');
  const partyId = page?.rows.at(-1)?.key ?? '';
  expect(await failureOf(source.ledger.ask({ partyId }, NEVER))).toMatchObject({
    code: 'ASSET_REQUIRED',
    meta: { status: 400, detailCode: 10_017 },
  });
});

test('requests wait for the sandbox’s rate limit instead of running against it', async () => {
  const { sandbox, source } = await sandboxSource({
    rateLimit: { perSecond: 0.001, burst: 2, banMs: 60_000 },
  });
  const ask = () =>
    source.lists.page({ list: 'parties', newestFirst: true, size: 10 }, NEVER);
  for (let count = 0; count < 2; count += 1) await ask();
  const error = await failureOf(ask());
  // The bucket does not refill while it is asked: politeness shows in the waits.
  expect(error).toMatchObject({
    code: expect.stringMatching(/^SOURCE_(?:RATE_LIMITED|BANNED)$/) as string,
  });
  expect(source.clock.slept.some((waitMs) => waitMs >= 1000)).toBe(true);
  expect(sandbox.requests.of('parties')).toBeLessThan(12);
});
