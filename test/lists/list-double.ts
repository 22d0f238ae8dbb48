/**
 * A double of the source's lists, in memory, with its page rules to the letter: the
 * cursor's row is in the answer and the first row is dropped without a look; tied heights
 * come in no fixed order and share a cursor; `network` is first newest first and
 * unreachable oldest first. Tests change what it holds between any two requests, and how
 * it answers any of them.
 */
import type {
  ListedRow,
  ListSource,
  Page,
  PageRequest,
} from '../../src/lists/ports.ts';

export interface DoubleRow {
  readonly row: ListedRow;
  /** Sort key: ties compare equal. Undefined for `network`, whose time is NULL. */
  readonly rank: bigint | undefined;
}

export interface Served {
  readonly question: PageRequest;
  readonly page: Page;
  /** 1 for the first request of this double. */
  readonly number: number;
}

export class ListDouble implements ListSource {
  baseUrl = 'http://node-1';
  readonly lists: Record<'parties' | 'checkpoints', DoubleRow[]> = {
    parties: [],
    checkpoints: [],
  };
  height: bigint | undefined = 1_000n;
  readonly questions: PageRequest[] = [];
  /** Called before each answer is computed: growth, retention. */
  before: (question: PageRequest, number: number) => Promise<void> | void =
    () => undefined;
  /** May change the answer, or throw. */
  answer: (served: Served) => Page | Promise<Page> = ({ page }) => page;
  latencyMs = 0;
  #shuffle: number;

  constructor(seed = 1) {
    this.#shuffle = seed;
  }

  async page(question: PageRequest, signal: AbortSignal): Promise<Page> {
    signal.throwIfAborted();
    this.questions.push(question);
    const number = this.questions.length;
    await this.before(question, number);
    if (this.latencyMs > 0)
      await new Promise((resolve) => setTimeout(resolve, this.latencyMs));
    else await Promise.resolve();
    signal.throwIfAborted();
    return this.answer({ question, number, page: this.compute(question) });
  }

  async party(id: string): Promise<ListedRow | undefined> {
    return this.lists.parties.find(({ row }) => row.key === id)?.row;
  }

  /** The page as the service computes it (source-facts 2.4). */
  compute(question: PageRequest): Page {
    const {
      newestFirst,
      size,
      after: cursor,
      fromEnd: isBackward = false,
    } = question;
    const isDescending = newestFirst !== isBackward;
    let rows = this.#ordered(question.list, isDescending);
    if (cursor !== undefined) {
      const rank = this.#rankOf(question.list, cursor);
      rows = rows.filter((candidate) => {
        if (candidate.rank === undefined || rank === undefined) return false;
        return isDescending ? candidate.rank <= rank : candidate.rank >= rank;
      });
    }
    const limit = cursor === undefined ? size + 1 : size + 2;
    const fetched = rows.slice(0, limit).map(({ row }) => row);
    const cut = this.#cut(fetched, cursor, size);
    const shown = isBackward ? cut.rows.toReversed() : cut.rows;
    return {
      rows: shown,
      hasNextPage: isBackward ? cut.behind : cut.ahead,
      startCursor: shown[0]?.cursor ?? '',
      endCursor: shown.at(-1)?.cursor ?? '',
      blockHeight: this.height,
      blockTime:
        this.height === undefined ? undefined : this.height * 1_000_000n,
    };
  }

  #cut(
    fetched: readonly ListedRow[],
    cursor: string | undefined,
    size: number,
  ): { rows: readonly ListedRow[]; ahead: boolean; behind: boolean } {
    if (cursor === undefined) {
      return {
        rows: fetched.slice(0, size),
        ahead: fetched.length > size,
        behind: false,
      };
    }
    if (fetched.length === size + 2)
      return { rows: fetched.slice(1, -1), ahead: true, behind: true };
    if (fetched.length === size + 1 || fetched[0]?.cursor === cursor) {
      return { rows: fetched.slice(1), ahead: false, behind: true };
    }
    return { rows: fetched, ahead: false, behind: false };
  }

  #rankOf(list: 'parties' | 'checkpoints', cursor: string): bigint | undefined {
    if (list === 'parties')
      return (
        this.lists.parties.find(({ row }) => row.cursor === cursor)?.rank ??
        gone(cursor)
      );
    const parsed = JSON.parse(Buffer.from(cursor, 'base64').toString()) as {
      blockHeight: number;
    };
    return BigInt(parsed.blockHeight);
  }

  /** Ties in another order at each call. NULL sorts first descending, last ascending. */
  #ordered(
    list: 'parties' | 'checkpoints',
    isDescending: boolean,
  ): DoubleRow[] {
    const rows = isDescending
      ? this.lists[list].toReversed()
      : [...this.lists[list]];
    for (let index = 1; index < rows.length; index += 1) {
      const left = rows[index - 1];
      const right = rows[index];
      if (left === undefined || right === undefined || left.rank !== right.rank)
        continue;
      this.#shuffle = (this.#shuffle * 1_103_515_245 + 12_345) % 2_147_483_648;
      if (this.#shuffle % 2 === 0) {
        rows[index - 1] = right;
        rows[index] = left;
      }
    }
    return rows;
  }
}

/** A cursor whose row is gone still says where it was. */
function gone(cursor: string): bigint | undefined {
  const parsed = JSON.parse(Buffer.from(cursor, 'base64').toString()) as {
    VegaTime: string | null;
  };
  return parsed.VegaTime === null ? undefined : rankOfTime(parsed.VegaTime);
}

const EPOCH_MS = Date.UTC(2023, 0, 1);

function rankOfTime(time: string): bigint {
  return BigInt((Date.parse(time) - EPOCH_MS) / 1000);
}

export function partyId(index: number): string {
  // Spread over the key space, as real ids are.
  const mixed = BigInt.asUintN(64, BigInt(index + 1) * 0x9e37_79b9_7f4a_7c15n);
  return mixed.toString(16).padStart(16, '0').repeat(4);
}

/** Party number `index`, first seen `index` seconds into 2023. */
export function party(index: number): DoubleRow {
  const id = partyId(index);
  const time = new Date(EPOCH_MS + index * 1000)
    .toISOString()
    .replace('.000Z', 'Z');
  const cursor = Buffer.from(
    JSON.stringify({ ID: id, TxHash: 'AB'.repeat(32), VegaTime: time }),
  ).toString('base64');
  return { row: { cursor, key: id, extra: undefined }, rank: BigInt(index) };
}

export const networkParty: DoubleRow = {
  row: {
    cursor: 'eyJJRCI6Im5ldHdvcmsiLCJUeEhhc2giOiIwMSIsIlZlZ2FUaW1lIjpudWxsfQ==',
    key: 'network',
    extra: undefined,
  },
  rank: undefined,
};

/** Parties 0 to count-1 and `network`, which sorts last. */
export function parties(count: number, from = 0): DoubleRow[] {
  return [
    ...Array.from({ length: count }, (_, index) => party(from + index)),
    networkParty,
  ];
}

export function checkpoint(
  height: number | bigint,
  variant = 0,
  chain = 'a',
): DoubleRow {
  const atBlock = `${height}`;
  const hash = `${chain}${variant}`.padEnd(64, '0');
  const blockHash = `${chain}${atBlock}`.padEnd(64, 'f');
  const cursor = Buffer.from(
    JSON.stringify({ blockHeight: Number(height) }),
  ).toString('base64');
  const row: ListedRow = {
    cursor,
    key: `${atBlock}/${hash}/${blockHash}`,
    extra: undefined,
  };
  return { row, rank: BigInt(height) };
}

/** Heights 10, 20, …; at every `tieEvery`-th `ties` rows, of which two are identical. */
export function checkpoints(
  heights: number,
  {
    tieEvery = 5,
    ties = 3,
    chain = 'a',
    from = 1,
  }: { tieEvery?: number; ties?: number; chain?: string; from?: number } = {},
): DoubleRow[] {
  return Array.from({ length: heights }, (_, index) => index + from).flatMap(
    (number) =>
      number % tieEvery === 0
        ? Array.from({ length: ties }, (_, tie) =>
            checkpoint(number * 10, Math.max(tie - 1, 0), chain),
          )
        : [checkpoint(number * 10, 0, chain)],
  );
}
