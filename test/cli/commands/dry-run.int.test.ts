/** What `nightly --dry-run` foretells, beside what the next nightly run then asks. */
import { afterAll, expect, test } from 'vitest';
import { freshDatabase } from '../../support/database.ts';
import { startSandbox } from '../../support/sandbox.ts';
import { openHome } from '../mirror-home.ts';

const PAGE_SIZE = 10;
const database = await freshDatabase();
const sandbox = await startSandbox({
  parties: 25,
  entriesMean: 40,
  rateLimit: 'none',
});
afterAll(() => sandbox.stop());
const home = await openHome({
  SOURCE_URL: sandbox.url,
  DATABASE_URL: database.url,
  SOURCE_PAGE_SIZE: String(PAGE_SIZE),
  NIGHTLY_AUDIT_SHARE: '50%',
});
afterAll(() => home[Symbol.asyncDispose]());

interface Foretold {
  readonly requests: number;
  readonly lists: {
    readonly requests: number;
    readonly each: readonly {
      readonly list: string;
      readonly rows: string;
      readonly isWhole: boolean;
    }[];
  };
  readonly audits: { readonly segments: string; readonly bytes: string };
}

test('a dry run of a mirror that knows nothing gives no rows and offers the lists', async () => {
  const { document } = await home.json(['nightly', '--dry-run']);
  expect(document).toMatchObject({
    isFirst: true,
    lists: { each: [] },
    audits: { segments: '0', bytes: '0' },
  });
});

test('a dry run foretells the pages of the lists and what the audits cost', async () => {
  for (let night = 1; night <= 2; night += 1)
    expect((await home.run(['nightly'])).code).toBe(0);
  const told = await home.run(['nightly', '--dry-run']);
  expect(told.stdout).toMatch(
    /lists {5}\d+: parties 25 rows, read whole; checkpoints [\d,]+ rows, read whole/,
  );
  const { document } = await home.json(['nightly', '--dry-run']);
  const foretold = document as unknown as Foretold;
  const parties = foretold.lists.each.find(({ list }) => list === 'parties');
  expect(parties?.rows).toBe(String([...sandbox.truth.parties()].length));

  const { rows } = await database.pool.query<{ n: string; bytes: string }>(
    `select count(*) as n, coalesce(sum(bytes), 0) as bytes from mirror.segments
     where status = 'current' and not open`,
  );
  const half = (text = '0') => String(Math.ceil(Number(text) / 2));
  expect(foretold.audits).toEqual({
    segments: half(rows[0]?.n),
    bytes: half(rows[0]?.bytes),
  });
  expect(told.stdout).toMatch(/audits {4}about \d+ closed segments once more/);

  const night = await home.json(['nightly']);
  const { source } = night.document.evidence as {
    source: { requests: { lists: number } };
  };
  const asked = source.requests.lists;
  // Overlaps of pages cost a few more than the pages alone.
  expect(foretold.lists.requests).toBeGreaterThanOrEqual(asked * 0.6);
  expect(foretold.lists.requests).toBeLessThanOrEqual(asked * 1.2);
});

test('a list beyond NIGHTLY_LIST_ROWS is foretold with what is new alone', async () => {
  const { document } = await home.json(['nightly', '--dry-run'], {
    NIGHTLY_LIST_ROWS: '0',
  });
  const { lists } = document as unknown as Foretold;
  expect(lists.each.map(({ isWhole }) => isWhole)).toEqual([false, false]);
  expect(lists.requests).toBe(5);
});
