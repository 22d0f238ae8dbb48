/** The list operations as OpenAPI tells of them. Nothing is validated by these: see query-text.ts. */
import { z } from 'zod';
import { named } from '../http/routes.ts';

export const PAGE_INFO = z.object({
  hasNextPage: z.boolean(),
  hasPreviousPage: z.boolean(),
  startCursor: z.string(),
  endCursor: z.string(),
});

const ROWS = z.int32().min(1).optional().meta({ format: 'int32' });
const CURSOR = z.string().optional();
const PAGING = z.object({
  'pagination.first': ROWS.describe(
    'Rows to return behind the cursor in `pagination.after`; more than 5000 are never sent. Default 1000.',
  ),
  'pagination.after': CURSOR.describe('Paging forward: the cursor of the previous page’s last row.'),
  'pagination.last': ROWS.describe(
    'Rows to return before the cursor in `pagination.before`. Ignored where `pagination.first` is given.',
  ),
  'pagination.before': CURSOR.describe('Paging backward: the cursor of the previous page’s first row.'),
  'pagination.newestFirst': z.boolean().default(true).describe('Newest rows first.'),
});
const PARTY_ID = z.string().optional().describe('Only this party; 404 where the mirror has none of that id.');

function page(name: string, node: z.ZodType) {
  const edges = z.array(z.object({ node, cursor: z.string() }));
  return { 200: z.object({ [name]: z.object({ edges, pageInfo: named('PageInfo') }) }) };
}

const CHECKPOINT = z.object({
  hash: z.string(),
  blockHash: z.string(),
  atBlock: z.string().meta({ format: 'uint64' }),
});

export const LISTS = {
  parties: {
    summary: 'List parties, or look one up',
    querystring: z.object({ partyId: PARTY_ID, ...PAGING.shape }),
    response: page('parties', z.object({ id: z.string() })),
  },
  checkpoints: {
    summary: 'List the checkpoints of the network',
    querystring: PAGING,
    response: page('checkpoints', CHECKPOINT),
  },
};
