/** What the interface document leaves open, and one way to fill each gap. */
import type { ListName } from './rows.ts';

/** What a cursor names, and what comes behind it. */
export type CursorKind =
  /** Its row: exactly the rows behind that row. */
  | 'row'
  /** The row's number from the oldest one on, in both orders. */
  | 'offset'
  /** The row's number in the order that was asked for. */
  | 'order-offset'
  /** A random token, another one for the same row in each answer. */
  | 'fresh'
  /** The row's age: all rows of that age and behind it, less the first of them. */
  | 'age-inclusive'
  /** The row's age: only rows behind all that share it. */
  | 'age-exclusive';

/** The order of rows that share an age. */
export type TieOrder =
  /** As they came; newest first is oldest first, turned round. */
  | 'mirrored'
  /** As they came, in both orders. */
  | 'by-insertion'
  /** By id, in both orders. */
  | 'by-id'
  /** By id; newest first is turned round. */
  | 'by-id-mirrored'
  /** At random, another in each order, but always the same one. */
  | 'scattered'
  /** At random in each answer. */
  | 'reshuffled';

export type EmptyPage =
  | 'plain'
  | 'null-cursors'
  | 'no-page-info'
  | 'null-edges'
  | 'no-edges'
  | 'null-page';

export interface Dialect {
  readonly cursor: CursorKind;
  /** Characters that a cursor is filled up to; 0: as it is. */
  readonly cursorCharacters: number;
  readonly ties: TieOrder;
  /** What a cursor does whose row has gone: it still names a place, or is refused. */
  readonly goneCursor: 'place' | 'refused';
  readonly defaultPage: number;
  /** More rows than these are cut to it, or refused with a status. */
  readonly most?: {
    readonly rows: number;
    readonly answer: 'clamp' | 400 | 422 | 500;
  };
  /** A page ends where its nodes reach this many characters (never before one row). */
  readonly pageCharacters?: number;
  readonly atBlock: 'text' | 'number';
  /** `proto3`: what is false, empty or zero is left out. */
  readonly json: 'plain' | 'proto3';
  readonly pageInfo: 'always' | 'never';
  readonly emptyPage: EmptyPage;
  readonly hasNextPage: 'true' | 'honest' | 'false' | 'random';
  /** `last` and `before`. */
  readonly backward: 'served' | 'refused' | 'ignored';
  readonly newestFirst: 'honoured' | 'always-newest' | 'always-oldest';
  readonly partyId: 'served' | 'empty' | 'ignored' | 400 | 404 | 500;
  readonly hasUnknownFields: boolean;
  readonly isGzip: boolean;
  /** A list that this source does not serve. */
  readonly notServed?: { readonly list: ListName; readonly status: number };
  /** Rows that come before each of the first requests, as of honest sources that grow. */
  readonly growth?: { readonly rows: number; readonly requests: number };
  readonly seed: number;
}

export const PLAIN: Dialect = {
  cursor: 'row',
  cursorCharacters: 0,
  ties: 'mirrored',
  goneCursor: 'place',
  defaultPage: 1000,
  atBlock: 'text',
  json: 'plain',
  pageInfo: 'always',
  emptyPage: 'plain',
  hasNextPage: 'honest',
  backward: 'served',
  newestFirst: 'honoured',
  partyId: 'served',
  hasUnknownFields: false,
  isGzip: false,
  seed: 7,
};
