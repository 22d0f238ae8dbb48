/**
 * What is wrong with a page's layout: text on text, text that is cut, what lies beside
 * the screen.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page } from 'playwright-core';

const IN_PAGE = readFileSync(
  join(import.meta.dirname, 'find-layout-faults.js'),
  'utf8',
);

/** @returns a sentence for each fault */
export async function layoutFaults(page: Page): Promise<readonly string[]> {
  return page.evaluate<readonly string[]>(IN_PAGE);
}
