/** What the console says of a mirror before its first night. */
import { expect, test } from 'vitest';
import { EMPTY_FACTS } from '../mirror.ts';
import { accessibilityFaults } from './accessibility.ts';
import { openPage } from './browser.ts';
import { openFixedConsole, quiet, run, UNDER_WAY } from './fixed-console.ts';

test('an empty mirror shows what the first night will do, and starts it', async () => {
  await using fixed = await openFixedConsole(
    {
      live: quiet(),
      status: EMPTY_FACTS,
      runs: [],
      settings: [
        setting('SOURCE_URL', 'https://ledger.example.com/'),
        setting('NIGHTLY_PARTIES', 'all'),
        setting('OBJECT_STORE_URL', 's3://bucket/prefix'),
      ],
    },
    50,
  );
  await using view = await openPage();
  await view.page.goto(fixed.url);
  const { page } = view;
  for (const text of [
    'https://ledger.example.com/',
    's3://bucket/prefix',
    'At most 10 requests a second.',
    'ledger-mirror nightly --dry-run --look',
  ])
    await page.locator('#first-night', { hasText: text }).waitFor();
  expect(await accessibilityFaults(page)).toEqual([]);

  const [request] = await Promise.all([
    page.waitForRequest((sent) => sent.method() === 'POST'),
    page.getByRole('button', { name: 'Start the first night' }).click(),
  ]);
  expect(request.postDataJSON()).toMatchObject({ kind: 'nightly' });

  fixed.facts.live = {
    ...quiet(),
    openRuns: [run({ kind: 'nightly', subject: 'now', ...UNDER_WAY })],
    revision: '1',
  };
  await page.locator('#first-night').waitFor({ state: 'hidden' });
});

function setting(name: string, value: string) {
  return { name, value, isSecret: false, origin: '.env', help: '' };
}
