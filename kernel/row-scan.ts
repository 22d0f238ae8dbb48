/**
 * Finds the rows of a block and what an export asks of each, sixteen bytes at a time. AssemblyScript; `npm run
 * kernel` compiles it. It judges rows written as releases write them; every other one is marked as odd, for the
 * TypeScript reader (`RowFilter`) to look at. Positions are counted from the block's beginning.
 */
const PARTY: usize = 0;
const ASSET: usize = 64;
const RECORDS: usize = 1024;
const RECORD_BYTES: usize = 24;
const RECORDS_MAX: i32 = 4096;
const BLOCK: usize = 128 * 1024;

const LINE_FEED: u8 = 0x0a;
const CARRIAGE_RETURN: u8 = 0x0d;
const SPACE: u8 = 0x20;
const QUOTE: u8 = 0x22;
const PLUS: u8 = 0x2b;
const COMMA: u8 = 0x2c;
const DASH: u8 = 0x2d;
const DOT: u8 = 0x2e;
const ZERO: u8 = 0x30;
const COLON: u8 = 0x3a;
const BACKSLASH: u8 = 0x5c;
const LOWER_CASE: u8 = 0x20;

const IS_FROM: i32 = 1;
const IS_TO: i32 = 2;
const IS_ASSET: i32 = 4;
const IS_ODD: i32 = 8;

let columns: i32 = 0;
let timeColumn: i32 = 0;
let fromColumn: i32 = 0;
let toColumn: i32 = 0;
let assetColumn: i32 = 0;

let second: f64 = 0;
/** The date last read, as its ten bytes, and its first second: rows of a day follow one another. */
let dateHead: u64 = 0;
let dateTail: u16 = 0;
let daySecond: i64 = 0;

/** Commas, line ends and quotes among the sixteen bytes at `base` that were not looked at yet. */
let base: usize = 0;
let marks: i32 = 0;

/** Columns by number; -1 where none is to be compared. The ids lie in memory, in lower case. */
export function configure(count: i32, time: i32, from: i32, to: i32, asset: i32): void {
  columns = count;
  timeColumn = time;
  fromColumn = from;
  toColumn = to;
  assetColumn = asset;
}

/**
 * Reads rows of the block's bytes from `start` to `end`, which is behind a line end.
 * @returns how many records were written: start, end without the line end, next, flags, second
 */
export function scan(start: i32, end: i32): i32 {
  const limit = BLOCK + end;
  let count: i32 = 0;
  let row = BLOCK + start;
  look(row);
  while (row < limit && count < RECORDS_MAX) {
    let flags: i32 = 0;
    let column: i32 = 0;
    let field = row;
    let isQuoted = false;
    let afterQuote: usize = 0;
    let at: usize = 0;
    let fieldEnd: usize = 0;
    for (;;) {
      at = next();
      const byte = load<u8>(at);
      if (byte == QUOTE) {
        // One in a field's middle means different things to different readers.
        if (!isQuoted && at != field && at != afterQuote) flags |= IS_ODD;
        isQuoted = !isQuoted;
        afterQuote = at + 1;
        continue;
      }
      if (isQuoted) continue;
      fieldEnd = at;
      if (byte == LINE_FEED && at > row && load<u8>(at - 1) == CARRIAGE_RETURN) fieldEnd = at - 1;
      if (column == timeColumn) flags |= readTime(field, fieldEnd) ? 0 : IS_ODD;
      else if (column == fromColumn) flags |= compare(field, fieldEnd, PARTY, IS_FROM);
      else if (column == toColumn) flags |= compare(field, fieldEnd, PARTY, IS_TO);
      else if (column == assetColumn) flags |= compare(field, fieldEnd, ASSET, IS_ASSET);
      column += 1;
      if (byte == LINE_FEED) break;
      field = at + 1;
    }
    // A blank line is no row.
    if (fieldEnd > row) {
      if (column != columns) flags |= IS_ODD;
      const record = RECORDS + <usize>count * RECORD_BYTES;
      store<i32>(record, <i32>(row - BLOCK));
      store<i32>(record, <i32>(fieldEnd - BLOCK), 4);
      store<i32>(record, <i32>(at + 1 - BLOCK), 8);
      store<i32>(record, flags, 12);
      store<f64>(record, second, 16);
      count += 1;
    }
    row = at + 1;
  }
  return count;
}

/** Begins at any position. */
function look(at: usize): void {
  base = at;
  marks = marksAt(at);
}

/** The next comma, line end or quote. There always is one: a block ends on a row, and is asked for no more. */
function next(): usize {
  while (marks == 0) {
    base += 16;
    marks = marksAt(base);
  }
  const at = base + ctz(marks);
  marks &= marks - 1;
  return at;
}

function marksAt(at: usize): i32 {
  const bytes = v128.load(at);
  const ends = v128.or(i8x16.eq(bytes, i8x16.splat(COMMA)), i8x16.eq(bytes, i8x16.splat(LINE_FEED)));
  return i8x16.bitmask(v128.or(ends, i8x16.eq(bytes, i8x16.splat(QUOTE))));
}

/** @returns `flag` where the field is this id, `\x` and hex or plain, in either case; odd where it is quoted */
function compare(start: usize, end: usize, id: usize, flag: i32): i32 {
  const first = load<u8>(start);
  if (first == QUOTE && end - start > 2) return IS_ODD;
  const from = first == BACKSLASH ? start + 2 : start;
  if (end - from != 64) return 0;
  const lower = i8x16.splat(LOWER_CASE);
  let same = i8x16.eq(v128.or(v128.load(from), lower), v128.load(id));
  same = v128.and(same, i8x16.eq(v128.or(v128.load(from, 16), lower), v128.load(id, 16)));
  same = v128.and(same, i8x16.eq(v128.or(v128.load(from, 32), lower), v128.load(id, 32)));
  same = v128.and(same, i8x16.eq(v128.or(v128.load(from, 48), lower), v128.load(id, 48)));
  return i8x16.all_true(same) ? flag : 0;
}

/** `2023-05-01 10:00:00.123456+00`: only UTC, and years of four digits after 1970. */
function readTime(start: usize, end: usize): bool {
  if (end - start < 22 || !readDate(start) || load<u8>(start, 10) != SPACE) return false;
  const hour = digits(start + 11);
  const minute = digits(start + 14);
  const seconds = digits(start + 17);
  if (load<u8>(start, 13) != COLON || load<u8>(start, 16) != COLON) return false;
  if (hour > 23 || minute > 59 || seconds > 59) return false;
  let at = start + 19;
  if (load<u8>(at) == DOT) {
    const first = at + 1;
    for (at = first; load<u8>(at) - ZERO <= 9;) at += 1;
    if (at == first || at - first > 6) return false;
  }
  if (at + 3 != end || load<u8>(at) != PLUS || load<u8>(at, 1) != ZERO || load<u8>(at, 2) != ZERO)
    return false;
  second = <f64>(daySecond + hour * 3600 + minute * 60 + seconds);
  return true;
}

function readDate(start: usize): bool {
  const head = load<u64>(start);
  const tail = load<u16>(start, 8);
  if (head == dateHead && tail == dateTail) return true;
  const century = digits(start);
  const yearOfCentury = digits(start + 2);
  const month = digits(start + 5);
  const day = digits(start + 8);
  const year = century * 100 + yearOfCentury;
  if (load<u8>(start, 4) != DASH || load<u8>(start, 7) != DASH) return false;
  if (century > 99 || yearOfCentury > 99 || year < 1970) return false;
  if (month < 1 || month > 12 || day < 1 || day > daysOf(month, year)) return false;
  dateHead = head;
  dateTail = tail;
  daySecond = daysBefore(year, month, day) * 86400;
  return true;
}

function daysOf(month: i64, year: i64): i64 {
  if (month == 2) return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

/** Days from 1970-01-01, in years that begin with March. */
function daysBefore(year: i64, month: i64, day: i64): i64 {
  const y = month <= 2 ? year - 1 : year;
  const m = month <= 2 ? month + 9 : month - 3;
  return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

/** Two digits as a number; 1000 where they are not digits. */
function digits(at: usize): i64 {
  const tens = <u8>(load<u8>(at) - ZERO);
  const ones = <u8>(load<u8>(at, 1) - ZERO);
  return tens > 9 || ones > 9 ? 1000 : <i64>tens * 10 + ones;
}
