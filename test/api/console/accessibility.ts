/** What axe finds wrong with a page as it stands, one line each. */
import axe from 'axe-core';
import type { Page } from 'playwright-core';

interface Found {
  readonly violations: readonly {
    readonly id: string;
    readonly help: string;
    readonly nodes: readonly { readonly target: readonly unknown[] }[];
  }[];
}

export async function accessibilityFaults(
  page: Page,
): Promise<readonly string[]> {
  // By the debugger's hand: the page's own policy lets no script in.
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate<Found>(
    'axe.run(document, { resultTypes: ["violations"] })',
  );
  return violations.map(
    ({ id, help, nodes }) =>
      `${id}: ${help} (${nodes.map(({ target }) => target.join(' ')).join('; ')})`,
  );
}
