/** The console's test notice: what the settings page offers, and what it reports. */
import { expect, test } from 'vitest';
import type { TestResult } from '../../../src/runs/notices.ts';
import { accessibilityFaults } from './accessibility.ts';
import { openPage } from './browser.ts';
import {
  type FixedParts,
  openFixedConsole,
  quiet,
  wholeFacts,
} from './fixed-console.ts';
import { layoutFaults } from './layout.ts';

const TOKEN = 'write-token-of-the-tests-1';
const READ_TOKEN = 'read-token-of-the-tests-2';
const NOTIFY_URL = {
  name: 'NOTIFY_URL',
  value: '***',
  isSecret: true,
  origin: 'environment',
  help: 'where the start and end of runs are posted as JSON',
} as const;
const BUTTON = { name: 'Send a test notice' };

async function open(value: string | null, parts: FixedParts = {}) {
  const opened = new AsyncDisposableStack();
  const facts = {
    live: quiet(),
    status: wholeFacts(),
    runs: [],
    settings: [{ ...NOTIFY_URL, value }],
  };
  const mirror = opened.use(await openFixedConsole(facts, 500, parts));
  const { page } = opened.use(await openPage({ reducedMotion: 'reduce' }));
  await page.goto(new URL('/settings', mirror.url).href);
  const dispose = () => opened.disposeAsync();
  return { page, [Symbol.asyncDispose]: dispose };
}

test('a test notice from the console reports each receiver in a sentence', async () => {
  const results: TestResult[][] = [
    [
      {
        host: 'hooks.example.com',
        outcome: 'refused',
        status: 404,
        detail:
          'Cannot post the notice to hooks.example.com: status 404; check NOTIFY_URL',
      },
    ],
    [
      {
        host: 'hooks.example.com',
        outcome: 'accepted',
        status: 200,
        detail:
          'hooks.example.com accepted the test notice test_1 (status 200)',
      },
    ],
  ];
  await using view = await open('***', {
    testNotices: async () => results.shift() ?? [],
  });
  const { page } = view;
  const told = page.locator('#notices li');
  await page.getByRole('button', BUTTON).click();
  await told.getByText('status 404; check NOTIFY_URL').waitFor();
  expect(await told.innerText()).toMatch(/^Refused: /);
  expect(await accessibilityFaults(page)).toEqual([]);
  expect(await layoutFaults(page)).toEqual([]);
  await page.getByRole('button', BUTTON).click();
  await told.getByText('accepted the test notice test_1').waitFor();
  expect(await told.innerText()).toMatch(/^Accepted: /);
});

test('without NOTIFY_URL the console says that nobody gets notices, and offers none', async () => {
  await using view = await open(null);
  const { page } = view;
  await page.getByText('NOTIFY_URL is not set.').waitFor();
  expect(await page.getByRole('button', BUTTON).count()).toBe(0);
});

test('a read token may not send a test notice, and the page says so', async () => {
  await using view = await open('***', { token: TOKEN, readToken: READ_TOKEN });
  const { page } = view;
  await page.getByLabel('Token').fill(READ_TOKEN);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page
    .getByText('Your token can only read: it cannot send a test notice.')
    .waitFor();
  expect(await page.getByRole('button', BUTTON).isVisible()).toBe(false);
});
