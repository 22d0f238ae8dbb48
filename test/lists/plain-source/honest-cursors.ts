/** Honest dialects of cursors, ties and page sizes. */
import { honest, type HonestDialect } from './honest-source.ts';

const PAIRS = { partiesAtOnce: 2, checkpointsAtOnce: 2 };
const TRIPLES = { partiesAtOnce: 3, checkpointsAtOnce: 3 };
const CROWDS = { partiesAtOnce: 30, checkpointsAtOnce: 45 };
const CUT_TIES = 'a page that ends among ties loses the rest of them';

export const HONEST_CURSORS: readonly HonestDialect[] = [
  honest('row-cursors', 'a cursor names its row', { isFirm: true }),
  honest(
    'row-cursors-of-pairs',
    'a cursor names its row; two rows share each age',
    {
      recipe: PAIRS,
      isFirm: true,
    },
  ),
  honest(
    'row-cursors-of-crowds',
    'a cursor names its row; more rows share an age than a page holds',
    {
      recipe: CROWDS,
      parties: 95,
      checkpoints: 140,
    },
  ),
  honest(
    'absolute-offsets',
    'a cursor is the row’s number from the oldest one on',
    {
      dialect: { cursor: 'offset' },
      isFirm: true,
    },
  ),
  honest(
    'offsets-by-order',
    'a cursor is the row’s number in the order asked for',
    {
      dialect: { cursor: 'order-offset' },
      isFirm: true,
    },
  ),
  honest(
    'offsets-and-ties-by-id',
    'numbers by order; pairs come by id in both orders',
    {
      dialect: { cursor: 'order-offset', ties: 'by-id' },
      recipe: PAIRS,
      isFirm: true,
    },
  ),
  honest(
    'fresh-cursors',
    'each answer writes another random cursor for a row',
    {
      dialect: { cursor: 'fresh' },
      isFirm: true,
    },
  ),
  honest(
    'fresh-cursors-of-pairs',
    'random cursors; pairs come by id in both orders',
    {
      dialect: { cursor: 'fresh', ties: 'by-id' },
      recipe: PAIRS,
      isFirm: true,
    },
  ),
  honest(
    'inclusive-ages',
    'a cursor is an age: the rest of the rows of that age, less one',
    {
      dialect: { cursor: 'age-inclusive' },
      isFirm: true,
    },
  ),
  honest('inclusive-ages-of-pairs', 'the same, with two rows of each age', {
    dialect: { cursor: 'age-inclusive' },
    recipe: PAIRS,
    isFirm: true,
  }),
  honest(
    'inclusive-ages-of-crowds',
    'the same, with more rows of an age than a page holds',
    {
      dialect: { cursor: 'age-inclusive' },
      recipe: CROWDS,
      parties: 95,
      checkpoints: 140,
      idleRequests: 4,
      unreadable: 'the cursor of a crowd leads to the same page for ever',
    },
  ),
  honest(
    'inclusive-ages-with-twins',
    'every ninth checkpoint comes twice, alike in every field',
    {
      dialect: { cursor: 'age-inclusive' },
      recipe: { ...PAIRS, twinEvery: 9 },
    },
  ),
  honest(
    'inclusive-ages-reshuffled',
    'seven share an age, in another order in each answer',
    {
      dialect: { cursor: 'age-inclusive', ties: 'reshuffled' },
      recipe: { partiesAtOnce: 7, checkpointsAtOnce: 7 },
      unreadable: CUT_TIES,
    },
  ),
  honest(
    'exclusive-ages',
    'a cursor is an age: only rows behind all that share it',
    {
      dialect: { cursor: 'age-exclusive' },
      isFirm: true,
    },
  ),
  honest('exclusive-ages-of-pairs', 'the same, with two rows of each age', {
    dialect: { cursor: 'age-exclusive' },
    recipe: PAIRS,

    isFirm: true,
  }),
  honest(
    'exclusive-ages-of-triples',
    'the same, with three, in another order each time',
    {
      dialect: { cursor: 'age-exclusive', ties: 'reshuffled' },
      recipe: TRIPLES,
      unreadable: CUT_TIES,
      isFirm: true,
    },
  ),
  honest(
    'exclusive-ages-of-crowds',
    'the same, with more rows of an age than a page holds',
    {
      dialect: { cursor: 'age-exclusive' },
      recipe: CROWDS,
      parties: 95,
      checkpoints: 140,
      idleRequests: 4,
      unreadable: CUT_TIES,
    },
  ),
  honest(
    'one-age-for-all',
    'all rows share one age and one cursor; they fit two pages',
    {
      dialect: { cursor: 'age-inclusive' },
      recipe: { partiesAtOnce: 500, checkpointsAtOnce: 500 },
      parties: 35,
      checkpoints: 38,
      idleRequests: 4,
      unreadable: 'the cursor of a crowd leads to the same page for ever',
    },
  ),
  honest(
    'ties-by-insertion',
    'ties come as they were inserted, in both orders',
    {
      dialect: { ties: 'by-insertion' },
      recipe: TRIPLES,
      isFirm: true,
    },
  ),
  honest('ties-by-id', 'ties come by id in both orders', {
    dialect: { ties: 'by-id' },
    recipe: TRIPLES,
    isFirm: true,
  }),
  honest(
    'ties-by-id-in-one-page',
    'ties come by id in both orders, in lists of one page',
    {
      dialect: { ties: 'by-id' },
      recipe: { partiesAtOnce: 5, checkpointsAtOnce: 5 },
      parties: 15,
      checkpoints: 15,
      isFirm: true,
    },
  ),
  honest(
    'ties-by-id-mirrored',
    'ties come by id, and turned round in the other order',
    {
      dialect: { ties: 'by-id-mirrored' },
      recipe: TRIPLES,
      isFirm: true,
    },
  ),
  honest(
    'ties-scattered',
    'ties come at random, another way in each order, always the same',
    {
      dialect: { ties: 'scattered' },
      recipe: TRIPLES,
      isFirm: true,
    },
  ),
  honest('clamp-10', 'a page has at most 10 rows', {
    dialect: { most: { rows: 10, answer: 'clamp' } },
    isFirm: true,
  }),
  honest(
    'clamp-5-of-triples',
    'a page has at most 5 rows; three share an age',
    {
      dialect: { most: { rows: 5, answer: 'clamp' } },
      recipe: TRIPLES,
    },
  ),
  honest(
    'clamp-9-of-inclusive-triples',
    'at most 9 rows; three share an age and a cursor',
    {
      dialect: { most: { rows: 9, answer: 'clamp' }, cursor: 'age-inclusive' },
      recipe: TRIPLES,
    },
  ),
  honest(
    'clamp-8-of-exclusive-triples',
    'at most 8 rows; three share an age and a cursor that leads behind them',
    {
      dialect: { most: { rows: 8, answer: 'clamp' }, cursor: 'age-exclusive' },
      recipe: TRIPLES,
      unreadable: CUT_TIES,
    },
  ),
  honest(
    'clamp-5-of-exclusive-crowds',
    'nine rows share each cursor, which leads behind them, and a page has five',
    {
      dialect: { most: { rows: 5, answer: 'clamp' }, cursor: 'age-exclusive' },
      recipe: { partiesAtOnce: 9, checkpointsAtOnce: 9 },
      verdicts: {
        parties: ['incomplete', 'suspicious'],
        checkpoints: ['incomplete', 'suspicious'],
      },
      unreadable: 'four of each nine rows are never shown oldest first',
    },
  ),
  honest('clamp-3', 'a page has at most 3 rows', {
    dialect: { most: { rows: 3, answer: 'clamp' } },
  }),
  honest('clamp-2', 'a page has at most 2 rows', {
    dialect: { most: { rows: 2, answer: 'clamp' } },
  }),
  honest('clamp-1', 'a page has one row', {
    dialect: { most: { rows: 1, answer: 'clamp' } },
  }),
  honest('refuses-more-than-10-with-400', 'a larger page is refused', {
    dialect: { most: { rows: 10, answer: 400 } },
  }),
  honest('refuses-more-than-10-with-422', 'a larger page is refused', {
    dialect: { most: { rows: 10, answer: 422 } },
  }),
  honest('refuses-more-than-10-with-500', 'a larger page is refused', {
    dialect: { most: { rows: 10, answer: 500 } },
  }),
  honest('refuses-more-than-3', 'a larger page is refused', {
    dialect: { most: { rows: 3, answer: 400 } },
  }),
  honest('refuses-more-than-1', 'only single rows are served', {
    dialect: { most: { rows: 1, answer: 400 } },
  }),
  honest('uneven-pages', 'a page ends where it has grown to some length', {
    dialect: { pageCharacters: 900 },
  }),
  honest('grows-by-a-row', 'a row more before each of the first 8 requests', {
    dialect: { growth: { rows: 1, requests: 8 } },
  }),
  honest(
    'grows-by-a-page-and-more',
    'numbers by order, 30 rows more before each of the first 6 requests',
    {
      dialect: { cursor: 'order-offset', growth: { rows: 30, requests: 6 } },
    },
  ),
  honest(
    'grows-with-shared-cursors',
    'inclusive ages, three rows more before each of the first 8 requests',
    {
      dialect: { cursor: 'age-inclusive', growth: { rows: 3, requests: 8 } },
      recipe: PAIRS,
    },
  ),
];
