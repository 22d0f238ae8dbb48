/** The two lists beside the export: the parties of the cases, and no checkpoints. */
import { json, refusal, type Reply } from './reply.ts';

const MANY = 10_000;

/**
 * Parties in the order of the cases, the first one the oldest; a cursor is a party's
 * number.
 */
export function answerParties(
  parties: readonly string[],
  query: URLSearchParams,
  headers: Reply['headers'],
): Reply {
  const wanted = query.get('partyId');
  const isNewestFirst = query.get('pagination.newestFirst') !== 'false';
  const numbered = parties.map((id, at) => ({
    node: { id },
    cursor: `c${at}`,
  }));
  const all = (isNewestFirst ? numbered.toReversed() : numbered).filter(
    ({ node }) => wanted === null || node.id === wanted,
  );
  const after = query.get('pagination.after');
  const from =
    after === null ? 0 : all.findIndex(({ cursor }) => cursor === after) + 1;
  if (after !== null && from === 0)
    return refusal(400, 'the cursor is not known');
  const first = Number(query.get('pagination.first') ?? MANY);
  return writeList(
    'parties',
    all,
    from,
    Math.min(from + first, all.length),
    headers,
  );
}

export function answerCheckpoints(headers: Reply['headers']): Reply {
  return writeList('checkpoints', [], 0, 0, headers);
}

function writeList(
  name: string,
  all: readonly { cursor: string }[],
  from: number,
  to: number,
  headers: Reply['headers'],
): Reply {
  const edges = all.slice(from, to);
  const pageInfo = {
    hasNextPage: to < all.length,
    hasPreviousPage: from > 0,
    startCursor: edges.at(0)?.cursor ?? '',
    endCursor: edges.at(-1)?.cursor ?? '',
  };
  return json({ [name]: { edges, pageInfo } }, 200, headers);
}
