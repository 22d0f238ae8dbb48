/**
 * A reader that follows the paging rules and nothing else: the measure of what a source
 * shows to anyone.
 */
import type { ListName } from './rows.ts';

export interface RawEdge {
  readonly cursor: string;
  readonly node: Readonly<Record<string, string>>;
}

export interface RawPage {
  readonly status: number;
  readonly body: string;
  readonly edges: readonly RawEdge[];
  readonly endCursor: string | undefined;
}

interface RawEnvelope {
  readonly edges?: readonly RawEdge[] | null;
  readonly pageInfo?: { readonly endCursor?: string | null } | null;
}

const MAX_REQUESTS = 900;

export async function ask(
  url: string,
  list: ListName,
  query: Record<string, string>,
): Promise<RawPage> {
  const answer = await fetch(
    `${url}/api/v2/${list}?${new URLSearchParams(query).toString()}`,
  );
  const body = await answer.text();
  const page = answer.ok ? parse(body)?.[list] : undefined;
  const edges = page?.edges ?? [];
  const endCursor = page?.pageInfo?.endCursor ?? edges.at(-1)?.cursor;
  return { status: answer.status, body, edges, endCursor };
}

/** Heights as text, whichever way they were written. */
function parse(body: string): Record<ListName, RawEnvelope | null> | undefined {
  try {
    return JSON.parse(
      body.replaceAll(/"atBlock":(\d+)/g, '"atBlock":"$1"'),
    ) as Record<ListName, RawEnvelope | null>;
  } catch {
    return undefined;
  }
}

export function keyOf(node: Readonly<Record<string, string>>): string {
  return (
    node['id'] ??
    `${node['atBlock'] ?? '0'}/${node['hash']}/${node['blockHash']}`
  );
}

/**
 * Keys in the order of their first appearance, oldest first; ends at a page that shows
 * nothing new.
 */
export async function readOldestFirst(
  url: string,
  list: ListName,
  pageSize: number,
): Promise<string[]> {
  const seen = new Set<string>();
  let size = pageSize;
  let after: string | undefined;
  for (let request = 0; request < MAX_REQUESTS; request += 1) {
    const page = await ask(url, list, {
      'pagination.first': String(size),
      'pagination.newestFirst': 'false',
      ...(after === undefined ? {} : { 'pagination.after': after }),
    });
    if (page.status !== 200) {
      if (size === 1) break;
      size = Math.ceil(size / 2);
      continue;
    }
    const known = seen.size;
    for (const { node } of page.edges) seen.add(keyOf(node));
    if (seen.size === known || !page.endCursor) break;
    after = page.endCursor;
  }
  return [...seen];
}

/** Keys of the newest-first page. */
export async function readNewest(
  url: string,
  list: ListName,
  pageSize: number,
): Promise<string[]> {
  const page = await ask(url, list, { 'pagination.first': String(pageSize) });
  return page.edges.map(({ node }) => keyOf(node));
}
