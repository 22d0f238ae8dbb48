/** The address of a page: it keeps what is shown, and a link leads there. */
import { afterEach, describe, expect, test } from 'vitest';
import { run } from './fixed-console.ts';
import { type FixedView, openFixedView } from './fixed-view.ts';

let opened: FixedView;

async function open(
  ...args: Parameters<typeof openFixedView>
): Promise<FixedView> {
  opened = await openFixedView(...args);
  return opened;
}

afterEach(async () => {
  await opened[Symbol.asyncDispose]();
});

describe('the address of the page', () => {
  test('keeps the kind of runs, and Back leads out of a run’s dialog', async () => {
    const { runId } = run({});
    const { view } = await open({ runs: [run({})] }, '/runs?kind=sync');
    const { page } = view;
    const kind = page.locator('#runs-kind');
    expect(await kind.inputValue()).toBe('sync');
    await kind.selectOption('export');
    expect(new URL(page.url()).search).toBe('?kind=export');
    await kind.selectOption('');
    expect(new URL(page.url()).search).toBe('');
    await kind.selectOption('sync');
    await page.locator('#runs summary').first().click();
    await page.locator(`#runs a[href="#run/${runId}"]`).click();
    const dialog = page.locator('#dialog');
    await dialog.waitFor();
    await page.goBack();
    await dialog.waitFor({ state: 'hidden' });
    expect(new URL(page.url()).search).toBe('?kind=sync');
    expect(new URL(page.url()).hash).toBe('');
    await page.goForward();
    await dialog.waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await dialog.waitFor({ state: 'hidden' });
    expect(new URL(page.url()).search).toBe('?kind=sync');
    // An unknown kind is ignored.
    await page.goto(new URL('/runs?kind=%3Cb%3E', page.url()).href);
    expect(await kind.inputValue()).toBe('');
  });

  test('keeps by which verdict and subject the runs are filtered, and asks the mirror for those', async () => {
    const { view } = await open(
      { runs: [run({})] },
      '/runs?verdict=failed&subject=ab',
    );
    const { page } = view;
    expect(await page.locator('#runs-verdict').inputValue()).toBe('failed');
    const subject = page.getByRole('searchbox', {
      name: 'Of a party or a list',
    });
    expect(await subject.inputValue()).toBe('ab');
    await subject.fill('cd');
    const [request] = await Promise.all([
      page.waitForRequest((sent) => sent.url().includes('mirror/runs?')),
      subject.press('Enter'),
    ]);
    expect(new URL(request.url()).search).toBe(
      '?limit=16&verdict=failed&subject=cd',
    );
    expect(new URL(page.url()).search).toBe('?verdict=failed&subject=cd');
  });

  test('keeps from when to when the runs started, as it was typed', async () => {
    const { view } = await open(
      { runs: [run({})] },
      '/runs?since=yesterday&until=2026-03-01',
    );
    const { page } = view;
    const until = page.getByLabel('Before', { exact: true });
    expect(await page.getByLabel('Since', { exact: true }).inputValue()).toBe(
      'yesterday',
    );
    expect(await until.inputValue()).toBe('2026-03-01');
    await until.fill('today');
    const [request] = await Promise.all([
      page.waitForRequest((sent) => sent.url().includes('mirror/runs?')),
      until.press('Enter'),
    ]);
    expect(new URL(request.url()).search).toBe(
      '?limit=16&since=yesterday&until=today',
    );
    expect(new URL(page.url()).search).toBe('?since=yesterday&until=today');
  });

  test('keeps which parties are shown, and the beginning of an id that is sought', async () => {
    const { view } = await open({}, '/data?show=quarantined');
    const { page } = view;
    const shown = page.locator('#parties-view');
    await page.getByText('Nothing is in quarantine').waitFor();
    await page.getByRole('searchbox').first().fill('ab');
    await expect
      .poll(() => new URL(page.url()).search)
      .toBe('?show=id&search=ab');
    await page.reload();
    await page.getByText('No party’s id begins with “ab”').waitFor();
    await shown.selectOption('recent');
    expect(new URL(page.url()).search).toBe('');
  });
});
