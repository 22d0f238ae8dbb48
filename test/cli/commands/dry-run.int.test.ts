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

interface Range {
  readonly least: number;
  readonly most: number | null;
}

interface Look {
  readonly requests: Range;
  readonly exports: Range;
  readonly networkRequests: number;
  readonly seconds: Range;
  readonly listBytes: Range;
  readonly lists: readonly {
    readonly list: string;
    readonly rows: Range;
    readonly requests: Range;
  }[];
}
let foreseen: Look | undefined;

test('--look estimates the first run from two requests a list', async () => {
  const before = sandbox.requests.of();
  const { document } = await home.json(['nightly', '--dry-run', '--look']);
  expect(sandbox.requests.of() - before).toBe(4);
  foreseen = document['look'] as Look;
  const parties = foreseen.lists.find(({ list }) => list === 'parties');
  const listed = [...sandbox.truth.parties()].length;
  expect(parties?.rows.least).toBeLessThanOrEqual(listed);
  expect(parties?.rows.most).toBeGreaterThanOrEqual(listed * 0.5);
  expect(foreseen.listBytes.least).toBeGreaterThan(0);

  // The parts add up, and `network` is a row without an export.
  const { lists, exports, networkRequests, requests } = foreseen;
  const rowsOf = (side: 'least' | 'most') => parties?.rows[side] ?? 0;
  expect(exports).toEqual({
    least: rowsOf('least') - 1,
    most: rowsOf('most') - 1,
  });
  for (const side of ['least', 'most'] as const)
    expect(requests[side]).toBe(
      lists.reduce((sum, one) => sum + (one.requests[side] ?? 0), 0) +
        (exports[side] ?? 0) +
        networkRequests,
    );

  const told = await home.run(['nightly', '--dry-run', '--look']);
  expect(told.stdout).toMatch(
    /^ {2}exports {6}(?:about )?[\d, to]+ requests, one for each party with a ledger; a large/m,
  );
  expect(told.stdout).toMatch(/^ {2}network {6}1 request, /m);
  expect(told.stdout).toMatch(/The first nightly run would send about /);
  expect(told.stdout).toMatch(/Two requests were sent for each list\. Nothing/);
});

test('--look without --dry-run is refused', async () => {
  const refused = await home.run(['nightly', '--look']);
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain(
    '--look: only works together with --dry-run',
  );
});

test('a dry run foretells the pages of the lists and what the audits cost', async () => {
  const first = await home.json(['nightly']);
  const cost = (
    first.document.evidence as {
      source: { requests: { lists: number; exports: number } };
    }
  ).source.requests;
  // The audits of a first run cost nothing, and each ledger is small: one request.
  expect(cost.lists + cost.exports).toBeLessThanOrEqual(
    (foreseen?.requests.most ?? 0) * 1.25,
  );
  expect(cost.lists + cost.exports).toBeGreaterThanOrEqual(
    (foreseen?.requests.least ?? 0) * 0.75,
  );
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
