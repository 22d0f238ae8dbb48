/**
 * The six kinds of cursor. Their texts hold `+`, `/` and `=`: a client that does not
 * encode them fails.
 */
import type { CursorKind, Dialect } from './dialect.ts';
import type { Order } from './order.ts';
import type { Random } from './random.ts';
import type { Item } from './rows.ts';

export interface Place {
  /** The first row behind the cursor. */
  readonly behind: number;
  /** One more than the last row in front of the cursor. */
  readonly inFront: number;
}

/** What a cursor's text holds: a name, the era of its issue, and filling. */
type Content = readonly [name: string, era: number, filling: string];

export class Cursors {
  private readonly dialect: Dialect;
  private readonly random: Random;
  private readonly tokens = new Map<string, number>();
  private readonly ages = new Map<number, bigint | null>();
  private era = 0;

  constructor(dialect: Dialect, random: Random) {
    this.dialect = dialect;
    this.random = random;
  }

  /** Refuses every cursor that was issued so far. */
  forget(): void {
    this.era += 1;
  }

  write(item: Item, at: number, order: Order): string {
    this.ages.set(item.serial, item.age);
    const filling = '?>'.repeat(
      2 + Math.floor(this.dialect.cursorCharacters * 0.375),
    );
    const content: Content = [this.name(item, at, order), this.era, filling];
    return Buffer.from(JSON.stringify(content)).toString('base64');
  }

  private name(item: Item, at: number, order: Order): string {
    if (item.age === null) return 'none';
    const names: Record<CursorKind, () => string> = {
      row: () => String(item.serial),
      offset: () =>
        String(order.isNewestFirst ? order.items.length - 1 - at : at),
      'order-offset': () => String(at),
      fresh: () => this.issueToken(item.serial),
      'age-inclusive': () => String(item.age),
      'age-exclusive': () => String(item.age),
    };
    return names[this.dialect.cursor]();
  }

  private issueToken(serial: number): string {
    const token = this.random.hex(24);
    this.tokens.set(token, serial);
    return token;
  }

  /** Where a cursor leads in this order; `undefined`: it is refused. */
  find(cursor: string, order: Order): Place | undefined {
    const content = readContent(cursor);
    if (content === undefined || content[1] !== this.era) return undefined;
    const name = content[0];
    if (this.dialect.cursor !== 'fresh' && !/^(none|\d+)$/.test(name))
      return undefined;
    if (name === 'none') return { behind: order.items.length, inFront: 0 };
    const number = Number(name);
    const places: Record<CursorKind, () => Place | undefined> = {
      row: () => this.findSerial(number, order),
      offset: () =>
        findIndex(
          order.isNewestFirst ? order.items.length - 1 - number : number,
        ),
      'order-offset': () => findIndex(number),
      fresh: () => this.findSerial(this.tokens.get(name), order),
      'age-inclusive': () => {
        const { behind, inFront } = findAge(BigInt(name), order);
        return { behind: inFront + 1, inFront: behind - 1 };
      },
      'age-exclusive': () => findAge(BigInt(name), order),
    };
    return places[this.dialect.cursor]();
  }

  private findSerial(
    serial: number | undefined,
    order: Order,
  ): Place | undefined {
    if (serial === undefined) return undefined;
    const at = order.indexes.get(serial);
    if (at !== undefined) return findIndex(at);
    const age = this.ages.get(serial);
    if (
      age === undefined ||
      age === null ||
      this.dialect.goneCursor === 'refused'
    )
      return undefined;
    return findAge(age, order);
  }
}

function readContent(cursor: string): Content | undefined {
  const bytes = Buffer.from(cursor, 'base64');
  if (bytes.toString('base64') !== cursor) return undefined;
  try {
    const content = JSON.parse(bytes.toString('utf8')) as Content;
    return Array.isArray(content) && typeof content[0] === 'string'
      ? content
      : undefined;
  } catch {
    return undefined;
  }
}

function findIndex(at: number): Place {
  return { behind: at + 1, inFront: at };
}

/** The rows of an age: `inFront` is the first of them, `behind` the first after them. */
function findAge(age: bigint, order: Order): Place {
  const isInFront = (item: Item): boolean =>
    order.isNewestFirst ? (item.age ?? 0n) > age : (item.age ?? 0n) < age;
  const inFront = order.items.filter(isInFront).length;
  const sharing = order.items.filter((item) => item.age === age).length;
  return { behind: inFront + sharing, inFront };
}
