/** A page as JSON text. Written by hand: heights up to 2^64-1 may go out as numbers. */
import type { Dialect, EmptyPage } from './dialect.ts';
import type { Page } from './page.ts';
import type { Random } from './random.ts';
import type { Item, ListName } from './rows.ts';

type Member = readonly [name: string, json: string];

export function writePage(
  list: ListName,
  page: Page,
  dialect: Dialect,
  random: Random,
): string {
  const text = writeObject([
    [
      list,
      page.edges.length === 0
        ? writeEmpty(page, dialect, random)
        : writeFull(page, dialect, random),
    ],
  ]);
  return dialect.hasUnknownFields ? text.replaceAll(',', ',\n  ') : text;
}

function writeFull(page: Page, dialect: Dialect, random: Random): string {
  const edges = page.edges.map(({ cursor, item }) =>
    writeObject([
      ['node', writeNode(item, dialect)],
      ['cursor', JSON.stringify(cursor)],
    ]),
  );
  return writeObject([
    ['edges', `[${edges.join(',')}]`],
    ...(dialect.pageInfo === 'never'
      ? []
      : [writePageInfo(page, dialect, random)]),
    ...(dialect.hasUnknownFields ? [['totalCount', 'null'] as const] : []),
  ]);
}

function writeEmpty(page: Page, dialect: Dialect, random: Random): string {
  const pageInfo =
    dialect.pageInfo === 'never' ? [] : [writePageInfo(page, dialect, random)];
  const nullCursors =
    '{"startCursor":null,"endCursor":null,"hasNextPage":false,"hasPreviousPage":null}';
  const forms: Record<EmptyPage, string> = {
    plain: writeObject(
      dialect.json === 'proto3' ? pageInfo : [['edges', '[]'], ...pageInfo],
    ),
    'null-cursors': `{"edges":[],"pageInfo":${nullCursors}}`,
    'no-page-info': '{"edges":[]}',
    'null-edges': writeObject([['edges', 'null'], ...pageInfo]),
    'no-edges': writeObject(pageInfo),
    'null-page': 'null',
  };
  return forms[dialect.emptyPage];
}

function writePageInfo(page: Page, dialect: Dialect, random: Random): Member {
  const members: Member[] = [
    ['startCursor', JSON.stringify(page.startCursor)],
    ['endCursor', JSON.stringify(page.endCursor)],
    ['hasNextPage', String(chooseHasNext(page, dialect, random))],
    ['hasPreviousPage', String(page.hasPreviousPage)],
  ];
  const saysNothing = (json: string): boolean =>
    json === 'false' || json === '""';
  return [
    'pageInfo',
    writeObject(
      dialect.json === 'proto3'
        ? members.filter(([, json]) => !saysNothing(json))
        : members,
    ),
  ];
}

function chooseHasNext(page: Page, dialect: Dialect, random: Random): boolean {
  if (dialect.hasNextPage === 'honest') return page.hasNextPage;
  return dialect.hasNextPage === 'random'
    ? random.chance(0.5)
    : dialect.hasNextPage === 'true';
}

function writeNode(item: Item, dialect: Dialect): string {
  const members = Object.entries(item.fields).map(([name, value]): Member => {
    const isNumber = name === 'atBlock' && dialect.atBlock === 'number';
    return [name, isNumber ? value : JSON.stringify(value)];
  });
  const shown =
    dialect.json === 'proto3'
      ? members.filter(([, json]) => json !== '"0"' && json !== '0')
      : members;
  if (!dialect.hasUnknownFields) return writeObject(shown);
  return writeObject([
    ['alias', '{"edges":["a",1,null]}'],
    ...shown,
    ['metadata', '[]'],
    ['verified', 'false'],
  ]);
}

function writeObject(members: readonly Member[]): string {
  return `{${members.map(([name, json]) => `${JSON.stringify(name)}:${json}`).join(',')}}`;
}
