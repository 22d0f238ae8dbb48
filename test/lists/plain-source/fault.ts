/**
 * One dishonest behaviour: what it does to the lists, to a page, to an answer; and when.
 */
import type { ListRequest, Page } from './page.ts';
import type { Item, ListName } from './rows.ts';
import type { Dialect } from './dialect.ts';

/** Which requests a fault meets. All conditions must hold. */
export interface When {
  readonly list?: ListName;
  readonly order?: 'oldest-first' | 'newest-first';
  /** A page with `after`, one without a cursor, or one that promises more rows. */
  readonly page?: 'first' | 'behind-a-cursor' | 'promising';
  /** Matching requests that pass before the first fault. */
  readonly from?: number;
  /** The number of faults; without it there is no end. */
  readonly times?: number;
  /** Every so many matching requests. */
  readonly every?: number;
}

/** What a fault may look at and change: the world of the source. */
export interface Surroundings {
  readonly dialect: Dialect;
  /** Rows of another network, oldest first. */
  readonly foreign: Readonly<Record<ListName, readonly Item[]>>;
  /** What a healthy source has, oldest first. */
  all(list: ListName): readonly Item[];
  /** Adds rows at the places of their age. */
  insert(list: ListName, items: readonly Omit<Item, 'serial'>[]): void;
  remove(list: ListName, serials: ReadonlySet<number>): void;
  /** Refuses every cursor that was issued so far. */
  forgetCursors(list: ListName): void;
  honestPage(request: ListRequest): Page;
}

/** One request that a fault meets. `n` counts those before it. */
export interface Call {
  readonly n: number;
  readonly request: ListRequest;
  readonly world: Surroundings;
}

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The connection breaks after so many bytes of the body. */
  readonly cutAfter?: number;
}

export interface Behaviour {
  /**
   * The rows that are served instead, oldest first. Healing brings the true ones back.
   */
  readonly view?: (
    items: readonly Item[],
    list: ListName,
    world: Surroundings,
  ) => readonly Item[];
  /** A page of its own, whatever the lists hold; `undefined`: the page as usual. */
  readonly instead?: (call: Call) => Page | undefined;
  /** Changes the lists for good. */
  readonly change?: (call: Call) => void;
  readonly page?: (page: Page, call: Call) => Page;
  readonly answer?: (answer: Answer, call: Call) => Answer;
}

export interface Fault {
  readonly name: string;
  readonly meaning: string;
  /** What betrays the fault to a client that looks at nothing but the interface. */
  readonly betrayedBy: string;
  /**
   * `sync`: no run may say `complete` while a row is missing or foreign. `audit`: nothing
   * that one reading asks can show it; from the first audit on that begins after healing,
   * no run may.
   */
  readonly shownBy: 'sync' | 'audit';
  /** `held`: only a mirror that was complete before can know. */
  readonly since: 'first-sync' | 'held';
  /**
   * False: rows change places; their order proves nothing until an audit after healing.
   */
  readonly keepsOrder: boolean;
  /** No run that meets this may end `complete`, in lists longer than a page. */
  readonly neverComplete: boolean;
  /** False: healing does not bring the rows back; a person has to accept the loss. */
  readonly heals: boolean;
  readonly when: When;
  readonly make: () => Behaviour;
}

export interface ActiveFault {
  readonly behaviour: Behaviour;
  readonly when: When;
  /** Matching requests so far, by list. */
  readonly seen: Record<ListName, number>;
  /** Requests that the fault met so far, by list. */
  readonly met: Record<ListName, number>;
}

export function activate(fault: Fault, when?: When): ActiveFault {
  return {
    behaviour: fault.make(),
    when: { ...fault.when, ...when },
    seen: { parties: 0, checkpoints: 0 },
    met: { parties: 0, checkpoints: 0 },
  };
}

/** The number of this call among those that the fault meets; `undefined`: it passes. */
export function meet(
  active: ActiveFault,
  request: ListRequest,
  promisesMore: boolean,
): number | undefined {
  const { when, seen, met } = active;
  const { list } = request;
  if (!matches(when, request, promisesMore)) return undefined;
  const at = seen[list];
  seen[list] += 1;
  const isTurn =
    at >= (when.from ?? 0) && (at - (when.from ?? 0)) % (when.every ?? 1) === 0;
  if (!isTurn || met[list] >= (when.times ?? Number.POSITIVE_INFINITY))
    return undefined;
  met[list] += 1;
  return met[list] - 1;
}

function matches(
  when: When,
  request: ListRequest,
  promisesMore: boolean,
): boolean {
  if (request.partyId !== undefined) return false;
  if (when.list !== undefined && when.list !== request.list) return false;
  if (
    when.order !== undefined &&
    (when.order === 'newest-first') !== request.newestFirst
  )
    return false;
  return when.page === undefined || isOfKind(when.page, request, promisesMore);
}

function isOfKind(
  kind: NonNullable<When['page']>,
  request: ListRequest,
  promisesMore: boolean,
): boolean {
  if (kind === 'promising') return promisesMore;
  const hasCursor = request.after !== undefined || request.before !== undefined;
  return kind === 'first' ? !hasCursor : request.after !== undefined;
}

/**
 * Whether all requests see the same rows, so that what is served is all that anyone can
 * know.
 */
export function isConsistent({ when }: Pick<Fault, 'when'>): boolean {
  return [when.order, when.page, when.from, when.times, when.every].every(
    (condition) => condition === undefined,
  );
}
