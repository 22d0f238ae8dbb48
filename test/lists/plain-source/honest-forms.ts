/** Honest dialects of what a page looks like, of ids and numbers, of lengths of lists. */
import { honest, type HonestDialect } from './honest-source.ts';

const EMPTY = { parties: 0, checkpoints: 0 };
const NO_ORDER = 'pages come newest first, whatever is asked for';
const NEAR_THE_TOP = 2n ** 64n - 83n;
const NOT_PROVEN = {
  parties: ['incomplete', 'suspicious'],
  checkpoints: ['incomplete', 'suspicious'],
} as const;

export const HONEST_FORMS: readonly HonestDialect[] = [
  honest('heights-as-numbers', 'atBlock is a JSON number', {
    dialect: { atBlock: 'number' },
    isFirm: true,
  }),
  honest(
    'heights-to-the-last-as-numbers',
    'atBlock is a JSON number up to 2^64-1',
    {
      dialect: { atBlock: 'number' },
      recipe: { firstHeight: NEAR_THE_TOP, heightStep: 1n },
    },
  ),
  honest('heights-to-the-last-as-text', 'atBlock is text up to 2^64-1', {
    recipe: { firstHeight: NEAR_THE_TOP, heightStep: 1n },
  }),
  honest('heights-beyond-doubles', 'atBlock rises by one around 2^53', {
    dialect: { atBlock: 'number' },
    recipe: { firstHeight: 2n ** 53n - 40n, heightStep: 1n },
  }),
  honest('heights-from-zero', 'the first height is 0', {
    recipe: { firstHeight: 0n, heightStep: 1n },
  }),
  honest('proto3-json', 'what is false, empty or zero is left out', {
    dialect: { json: 'proto3' },
    recipe: { firstHeight: 0n, heightStep: 1n },
    isFirm: true,
  }),
  honest(
    'proto3-json-of-empty-lists',
    'what is false, empty or zero is left out; both lists are empty',
    {
      dialect: { json: 'proto3' },
      ...EMPTY,
    },
  ),
  honest('null-cursors-of-empty-lists', 'an empty page has null cursors', {
    dialect: { emptyPage: 'null-cursors' },
    ...EMPTY,
  }),
  honest('no-page-info-of-empty-lists', 'an empty page has no pageInfo', {
    dialect: { emptyPage: 'no-page-info' },
    ...EMPTY,
  }),
  honest('null-edges-of-empty-lists', 'an empty page has `edges: null`', {
    dialect: { emptyPage: 'null-edges' },
    ...EMPTY,
  }),
  honest('no-edges-of-empty-lists', 'an empty page has no edges at all', {
    dialect: { emptyPage: 'no-edges' },
    ...EMPTY,
  }),
  honest('null-page-of-empty-lists', 'an empty list is null', {
    dialect: { emptyPage: 'null-page' },
    ...EMPTY,
  }),
  honest(
    'null-edges-behind-the-last-row',
    'only pages behind the last row are empty',
    {
      dialect: { emptyPage: 'null-edges', hasNextPage: 'true' },
      idleRequests: 3,
    },
  ),
  honest('no-page-info-at-all', 'cursors come with the edges only', {
    dialect: { pageInfo: 'never' },
    verdicts: {
      parties: ['complete', 'incomplete'],
      checkpoints: ['complete', 'incomplete'],
    },
    idleRequests: 3,
  }),
  honest('promises-always', 'hasNextPage is always true', {
    dialect: { hasNextPage: 'true' },
    idleRequests: 3,
  }),
  honest('promises-never', 'hasNextPage is always false', {
    dialect: { hasNextPage: 'false' },
    idleRequests: 3,
  }),
  honest('promises-at-random', 'hasNextPage says nothing', {
    dialect: { hasNextPage: 'random' },
    idleRequests: 3,
  }),
  honest(
    'unknown-fields',
    'nodes and pages have more fields, and white space',
    {
      dialect: { hasUnknownFields: true },
      isFirm: true,
    },
  ),
  honest('gzip', 'every answer is gzip', { dialect: { isGzip: true } }),
  honest('refuses-backward', 'last and before are refused with 400', {
    dialect: { backward: 'refused' },
    isFirm: true,
  }),
  honest('ignores-backward', 'last and before are ignored', {
    dialect: { backward: 'ignored' },
    isFirm: true,
  }),
  honest('party-looked-up-404', 'partyId is answered with 404', {
    dialect: { partyId: 404 },
    network: 'middle',
  }),
  honest('party-looked-up-400', 'partyId is answered with 400', {
    dialect: { partyId: 400 },
    network: 'middle',
  }),
  honest('party-looked-up-500', 'partyId is answered with 500', {
    dialect: { partyId: 500 },
    network: 'middle',
  }),
  honest(
    'party-looked-up-ignored',
    'partyId is ignored: the whole list comes',
    {
      dialect: { partyId: 'ignored' },
      network: 'middle',
    },
  ),
  honest('party-looked-up-empty', 'partyId is answered with an empty page', {
    dialect: { partyId: 'empty' },
    network: 'middle',
  }),
  honest('network-first', 'the oldest party is `network`', {
    network: 'first',
    isFirm: true,
  }),
  honest('network-in-the-middle', '`network` is a party among others', {
    network: 'middle',
    isFirm: true,
  }),
  honest(
    'network-without-a-place',
    '`network` comes first of the newest, and never behind a cursor',
    {
      network: 'no-place',
      idleRequests: 3,
      unreadable: 'a row without a place is on no page behind a cursor',
    },
  ),
  honest(
    'network-without-a-place-or-look-up',
    'the same, and partyId is answered with 500',
    {
      network: 'no-place',
      dialect: { partyId: 500 },
      idleRequests: 3,
      unreadable: 'a row without a place is on no page behind a cursor',
    },
  ),
  honest(
    'network-without-a-place-in-one-page',
    'the same, in a list of one page',
    {
      network: 'no-place',
      parties: 8,
      idleRequests: 3,
    },
  ),
  honest(
    'only-network',
    '`network` is the only party, without a place; no checkpoints',
    {
      network: 'no-place',
      ...EMPTY,
      idleRequests: 3,
    },
  ),
  honest('always-oldest-first', 'newestFirst is ignored; last shows the end', {
    dialect: { newestFirst: 'always-oldest' },
    verdicts: {
      parties: ['complete', 'incomplete'],
      checkpoints: ['complete', 'incomplete'],
    },
    idleRequests: 3,
  }),
  honest(
    'always-oldest-first-only',
    'newestFirst is ignored, last is refused: nothing shows the end',
    {
      dialect: { newestFirst: 'always-oldest', backward: 'refused' },
      verdicts: NOT_PROVEN,
    },
  ),
  honest(
    'always-newest-first',
    'newestFirst is ignored: the oldest row never comes first',
    {
      dialect: { newestFirst: 'always-newest' },
      verdicts: NOT_PROVEN,
      unreadable: NO_ORDER,
    },
  ),
  honest('empty-lists', 'both lists are empty', EMPTY),
  honest('one-row', 'each list has one row', {
    parties: 1,
    checkpoints: 1,
    isFirm: true,
  }),
  honest('two-rows', 'each list has two rows', {
    parties: 2,
    checkpoints: 2,
    isFirm: true,
  }),
  honest('one-short-of-a-page', 'each list has 19 rows where a page has 20', {
    parties: 19,
    checkpoints: 19,
    isFirm: true,
  }),
  honest('one-page', 'each list fills a page', {
    parties: 20,
    checkpoints: 20,
    isFirm: true,
  }),
  honest('a-page-and-one', 'each list has a page and one row', {
    parties: 21,
    checkpoints: 21,
    isFirm: true,
  }),
  honest('many-pages', 'each list has about 30 pages', {
    parties: 611,
    checkpoints: 587,
  }),
  honest('uuids', 'ids are UUIDs', { recipe: { ids: 'uuid' }, isFirm: true }),
  honest('words', 'ids are party-1, party-2, …', {
    recipe: { ids: 'word' },
    isFirm: true,
  }),
  honest('prefixed-hex', 'ids are 0x and 40 hex digits', {
    recipe: { ids: '0x-hex' },
    isFirm: true,
  }),
  honest('upper-case-hex', 'ids are 64 upper-case hex digits', {
    recipe: { ids: 'upper-hex' },
  }),
  honest('long-ids', 'ids have 500 characters', { recipe: { ids: 'long' } }),
  honest(
    'odd-ids',
    'ids have spaces, slashes, quotes, percent signs and umlauts',
    {
      recipe: { ids: 'odd' },
    },
  ),
  honest('long-hashes', 'hashes have 600 characters', {
    recipe: { hashCharacters: 600 },
  }),
  honest('long-cursors', 'cursors have about 9,000 characters', {
    dialect: { cursorCharacters: 9000 },
  }),
  honest('checkpoints-answer-404', 'checkpoints are not served', {
    dialect: { notServed: { list: 'checkpoints', status: 404 } },
    verdicts: { checkpoints: ['incomplete', 'failed'] },
  }),
  honest('checkpoints-answer-500', 'checkpoints are answered with 500', {
    dialect: { notServed: { list: 'checkpoints', status: 500 } },
    verdicts: { checkpoints: ['incomplete', 'failed'] },
  }),
];
