import { beforeEach, describe, expect, it } from 'vitest';
import { PageShelf } from '../../src/api/service/page-shelf.ts';
import type { Page, PageRequest } from '../../src/api/service/paging.ts';
import type { ListState } from '../../src/api/service/store/read-store.ts';

const LAST = 40;
const STATE: ListState = { epoch: 1, headHeight: 7n, headTime: 7n, isComplete: true };
let made: string[];
let isFailing: boolean;
let shelf: PageShelf<number>;

beforeEach(() => {
  made = [];
  isFailing = false;
  shelf = new PageShelf(makePage, Number);
});

/** Page `n` of a list; its cursors are the numbers of its neighbours' cursors. */
async function makePage({ direction, cursor = 0 }: PageRequest<number>): Promise<Page> {
  made.push(`${direction} ${cursor}`);
  if (isFailing) throw new Error('the store is away');
  const isForward = direction === 'forward';
  const end = `${cursor + (isForward ? 1 : -1)}`;
  return {
    json: Buffer.from(`of ${cursor}`),
    hasNextPage: isForward && cursor < LAST,
    hasPreviousPage: !isForward && cursor > 0,
    startCursor: isForward ? '' : end,
    endCursor: isForward ? end : '',
  };
}

function from(cursor?: number, direction: 'forward' | 'backward' = 'forward'): PageRequest<number> {
  return { direction, newestFirst: true, rowsMax: 10, cursor, cursorText: `${cursor ?? ''}` };
}

/** Until what was begun ahead is there. */
function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

describe('pages', () => {
  it('are made once for all who ask for the same', async () => {
    const pages = await Promise.all([shelf.page(from(), STATE), shelf.page(from(), STATE)]);
    expect([...pages, await shelf.page(from(), STATE)].map(({ json }) => json.toString())).toEqual(
      Array(3).fill('of 0'),
    );
    expect(made).toEqual(['forward 0']);
  });

  it.each([
    { rowsMax: 11 },
    { newestFirst: false },
    { direction: 'backward' },
    { cursor: 3, cursorText: '3' },
  ] as const)('differ by %o', async (other) => {
    await shelf.page(from(), STATE);
    made = [];
    await shelf.page({ ...from(), ...other }, STATE);
    expect(made[0]).toBe(`${'direction' in other ? 'backward' : 'forward'} ${'cursor' in other ? 3 : 0}`);
  });

  it('are made anew as soon as the state is another', async () => {
    await shelf.page(from(), STATE);
    await shelf.page(from(), { ...STATE });
    expect(made).toEqual(['forward 0', 'forward 0']);
  });

  it('that could not be made are tried again', async () => {
    isFailing = true;
    await expect(shelf.page(from(), STATE)).rejects.toThrow('the store is away');
    isFailing = false;
    expect((await shelf.page(from(), STATE)).json.toString()).toBe('of 0');
  });

  it('are kept for the last few only', async () => {
    for (let rowsMax = 1; rowsMax <= 25; rowsMax += 1) await shelf.page({ ...from(), rowsMax }, STATE);
    made = [];
    await shelf.page({ ...from(), rowsMax: 25 }, STATE);
    await shelf.page({ ...from(), rowsMax: 2 }, STATE);
    expect(made).toEqual([]);
    await shelf.page({ ...from(), rowsMax: 1 }, STATE);
    expect(made).toEqual(['forward 0']);
  });
});

describe('the page made ahead', () => {
  it.each(['forward', 'backward'] as const)(
    'of whoever reads %s is there before it is asked for, and then the one behind it',
    async (way) => {
      const step = way === 'forward' ? 1 : -1;
      await shelf.page(from(5, way), STATE);
      await settled();
      expect(made).toEqual([`${way} 5`, `${way} ${5 + step}`]);
      expect((await shelf.page(from(5 + step, way), STATE)).json.toString()).toBe(`of ${5 + step}`);
      await settled();
      expect(made).toEqual([0, 1, 2, 3].map((steps) => `${way} ${5 + steps * step}`));
    },
  );

  it('is not made for a first page, nor behind the last', async () => {
    await shelf.page(from(), STATE);
    await shelf.page(from(LAST), STATE);
    await settled();
    expect(made).toEqual(['forward 0', `forward ${LAST}`]);
  });

  it('that could not be made ahead is made when it is asked for', async () => {
    await shelf.page(from(5), STATE);
    await settled();
    isFailing = true;
    await shelf.page(from(6), STATE);
    await settled();
    isFailing = false;
    expect((await shelf.page(from(7), STATE)).json.toString()).toBe('of 7');
    expect(made.filter((page) => page === 'forward 7')).toHaveLength(2);
  });

  it('is made for a few at once, so that nobody waits for what nobody may want', async () => {
    const waiting: (() => void)[] = [];
    const slow = new PageShelf(async (request: PageRequest<number>) => {
      if (!Number.isInteger(request.cursor)) await new Promise<void>((resolve) => waiting.push(resolve));
      return { ...(await makePage(request)), endCursor: `${(request.cursor ?? 0) + 0.5}` };
    }, Number);
    for (let cursor = 1; cursor <= 8; cursor += 1) await slow.page(from(cursor), STATE);
    expect(waiting).toHaveLength(4);
    for (const go of waiting.splice(0)) go();
    await settled();
    await slow.page(from(9), STATE);
    expect(waiting).toHaveLength(1);
  });
});
