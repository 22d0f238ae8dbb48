/** The list operations as OpenAPI tells of them. Nothing is validated by these: see query-text.ts. */

import { FLAG, sent, TEXT } from '../http/schemas.ts';

export const PAGE_INFO = {
  $id: 'PageInfo',
  ...sent({ hasNextPage: FLAG, hasPreviousPage: FLAG, startCursor: TEXT, endCursor: TEXT }),
};

const PAGING = {
  'pagination.first': {
    type: 'integer',
    format: 'int32',
    minimum: 1,
    description:
      'Rows to return behind the cursor in `pagination.after`; more than 5000 are never sent. Default 1000.',
  },
  'pagination.after': {
    type: 'string',
    description: 'Paging forward: the cursor of the previous page’s last row.',
  },
  'pagination.last': {
    type: 'integer',
    format: 'int32',
    minimum: 1,
    description:
      'Rows to return before the cursor in `pagination.before`. Ignored where `pagination.first` is given.',
  },
  'pagination.before': {
    type: 'string',
    description: 'Paging backward: the cursor of the previous page’s first row.',
  },
  'pagination.newestFirst': { type: 'boolean', default: true, description: 'Newest rows first.' },
} as const;

function listSchema(name: string, summary: string, node: object, parameters: object): object {
  const edges = { type: 'array', items: sent({ node, cursor: TEXT }) };
  return {
    tags: ['service'],
    summary,
    querystring: { type: 'object', properties: { ...parameters, ...PAGING } },
    response: { 200: sent({ [name]: sent({ edges, pageInfo: { $ref: 'PageInfo#' } }) }) },
  };
}

const PARTY = sent({ id: TEXT });
const CHECKPOINT = sent({ hash: TEXT, blockHash: TEXT, atBlock: { type: 'string', format: 'uint64' } });

export const LIST_SCHEMAS = {
  parties: listSchema('parties', 'List parties, or look one up', PARTY, {
    partyId: { type: 'string', description: 'Only this party; 404 where the mirror has none of that id.' },
  }),
  checkpoints: listSchema('checkpoints', 'List the checkpoints of the network', CHECKPOINT, {}),
} as const;
