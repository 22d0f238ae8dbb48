/** What a walk needs from the source and from the warehouse. */
import type { Micros } from '../core/time.ts';
import type { Verdict } from '../core/verdict.ts';

export type ListName = 'parties' | 'checkpoints';

/** One row of a list as the source sent it, with the cursor of its edge. */
export interface ListedRow {
  readonly cursor: string;
  /** Natural key: the party's id, or `atBlock/hash/blockHash`. */
  readonly key: string;
  /** Rows of one group share a cursor: the party's id, or the height as decimal text. */
  readonly group: string;
  /** Parties: [id]. Checkpoints: [atBlock, hash, blockHash]. Validated and canonical. */
  readonly fields: readonly string[];
  /** Fields of the node that nobody knew, or undefined. */
  readonly extra: Readonly<Record<string, unknown>> | undefined;
}

export interface PageQuestion {
  readonly list: ListName;
  readonly newestFirst: boolean;
  readonly size: number;
  /** Forward paging: the rows behind this cursor. Absent: the first page. */
  readonly after?: string | undefined;
  /** Backward paging (`last` with `before`); never together with `after`. */
  readonly before?: string | undefined;
}

export interface Page {
  readonly rows: readonly ListedRow[];
  readonly hasNextPage: boolean;
  readonly hasPreviousPage: boolean;
  readonly startCursor: string;
  readonly endCursor: string;
  /** The source's last block when it answered (`X-Block-*`), where it said so. */
  readonly blockHeight: bigint | undefined;
  readonly blockTime: Micros | undefined;
  /** Size of the answer's body, decoded. */
  readonly bytes: number;
}

/** The lists of the source. Retries, rate and timeouts are its own affair. */
export interface ListSource {
  /** Stable text that names the node asked; anchors are only sent back to the same one. */
  readonly baseUrl: string;
  /**
   * @throws PermanentError `PAGE_TOO_LARGE` where the source cannot send or refuses a page of this size
   * @throws PermanentError `CURSOR_REFUSED` where it refuses the cursor (400, or 500 again and again, with a cursor sent)
   * @throws PermanentError `PAGE_SHAPE` where the answer is no page, names the offending value
   * @throws RetryableError after its own retries are used up
   * @throws UnreachableError where no connection came about
   */
  page(question: PageQuestion, signal: AbortSignal): Promise<Page>;
  /** One party by filter; undefined where the source knows none of that id (404). */
  party(id: string, signal: AbortSignal): Promise<ListedRow | undefined>;
}

/** Reading upwards is oldest first, reading downwards newest first. */
export type Direction = 'up' | 'down';
/** What a page was asked for: the first page of an order, or the next of a direction. */
export type PageRole = 'head' | 'tail' | Direction;
export type WalkKind = 'walk' | 'audit';

/** All rows of one cursor, by natural key; a key that comes twice is there twice. */
export interface Group {
  readonly group: string;
  readonly keys: readonly string[];
}

/** A group and where it stands on the list's axis. Higher is newer. */
export interface PlacedGroup extends Group {
  readonly pos: bigint;
}

/** Where a direction goes on: the cursor of the group before the edge, so that the edge comes again. */
export interface Anchor {
  readonly cursor: string;
  /** Of the node that gave the cursor; it is sent back to no other. */
  readonly baseUrl: string;
  /** The cursor's group, then, where there is one more, the edge's: both were read whole. */
  readonly held: readonly Group[];
  /** What was seen of the group that the page's border may have cut. */
  readonly partial?: Group | undefined;
}

/** The head page that a chain was read up to. */
export interface ChainHead {
  readonly walkId: bigint;
  readonly height: bigint | undefined;
  readonly time: Micros | undefined;
}

/** A stretch of the list without a hole: every page border in it was proven by overlap. */
export interface Chain {
  readonly chainId: bigint;
  readonly lo: bigint;
  readonly hi: bigint;
  readonly hasTail: boolean;
  readonly head: ChainHead | undefined;
  /** The last few, the newest last; `bottom` to read on downwards, `top` upwards. */
  readonly bottom: readonly Anchor[];
  readonly top: readonly Anchor[];
}

export type ChainDraft = Omit<Chain, 'chainId'> & { readonly chainId: bigint | undefined };

/** Rows that are given a place. `pos` is new or, in an audit, the one they have. */
export interface PlacedRows {
  readonly pos: bigint;
  readonly rows: readonly ListedRow[];
  /** When the source first saw the party, where its cursor says so. */
  readonly firstSeen?: Micros | undefined;
}

export interface CommittedPage {
  readonly role: PageRole;
  /** Absent for a first page. */
  readonly after: string | undefined;
  readonly size: number;
  readonly rows: number;
  readonly firstKey: string | undefined;
  readonly lastKey: string | undefined;
  readonly height: bigint | undefined;
}

/** Everything that one page changes, committed as a whole or not at all. */
export interface PageCommit {
  readonly page: CommittedPage;
  readonly placed: readonly PlacedRows[];
  /** Rows that are kept without a place: `network`. */
  readonly unplaced: readonly ListedRow[];
  /** Chains that the new one takes the place of. */
  readonly absorbed: readonly bigint[];
  readonly chain: ChainDraft;
}

/** A fault of the source that forbids to say `complete`, kept with the walk across crashes. */
export interface Violation {
  readonly code: string;
  readonly meta: Readonly<Record<string, unknown>>;
}

export interface KnownGap {
  readonly belowKey: string | undefined;
  readonly aboveKey: string | undefined;
  readonly reason: string;
}

export interface WalkTotals {
  /** Rows of the list as the source serves them, repeated ones counted, by what is proven. */
  readonly rows: bigint;
  readonly newRows: bigint;
  readonly pages: Readonly<Record<PageRole, number>>;
  readonly violations: readonly Violation[];
  readonly knownGaps: readonly (KnownGap & { readonly foundAt: string })[];
  readonly startedAt: string | undefined;
  /** When every row was last looked for: the last complete audit, or the first complete walk. */
  readonly auditedAt: string | undefined;
}

/** What an audit found, counted before it is promoted. */
export interface AuditTotals {
  /** New rows below the highest row that was known before. */
  readonly missed: bigint;
  /** Rows that the source serves no longer, those marked before not counted. */
  readonly gone: bigint;
  readonly served: bigint;
}

/**
 * One walk under its lease. Every method that writes checks the lease in the same transaction.
 * @throws FencedError from any of them once another worker has taken the walk over
 */
export interface WalkSession {
  readonly walkId: bigint;
  readonly list: ListName;
  readonly kind: WalkKind;
  readonly epoch: number;
  /** Whether an earlier worker had begun it. */
  readonly resumed: boolean;
  /** The highest block that either list was ever read up to in this epoch. */
  readonly heightBefore: bigint | undefined;
  /** The positions that rows of the epoch had when it was opened; undefined where there is none. */
  readonly placesBefore: { readonly lowest: bigint; readonly highest: bigint } | undefined;

  renew(): Promise<void>;
  /** This walk's chains (an audit has its own), lowest first. */
  chains(): Promise<readonly Chain[]>;
  /** Where these groups stand, if they have a place that counts in this walk. */
  locate(groups: readonly string[]): Promise<ReadonlyMap<string, bigint>>;
  /** For an audit: where rows stand that it has not met yet. */
  formerPlaces(groups: readonly string[]): Promise<ReadonlyMap<string, bigint>>;
  /** For an audit: the nearest place beyond `pos`, whoever has it. */
  nextPlace(pos: bigint, direction: Direction): Promise<bigint | undefined>;
  /** Makes room beyond `pos` by moving its next rows away, in order; read the chains again after it. */
  spread(pos: bigint, direction: Direction, rowsMax: number): Promise<void>;
  /** The groups of a chain from one edge inward. */
  edge(chain: Chain, end: 'top' | 'bottom', groupsMax: number): Promise<readonly PlacedGroup[]>;
  /** @returns the id of the chain that was written */
  commit(change: PageCommit): Promise<bigint>;
  /** The same without a look-up before it: undefined, and nothing written, where a row has a place already. */
  commitIfNew(change: PageCommit): Promise<bigint | undefined>;
  /** Keeps rows that could not be proven, without a place. */
  keepUnproven(rows: readonly ListedRow[]): Promise<void>;
  note(violation: Violation): Promise<void>;
  recordGap(gap: KnownGap): Promise<void>;
  totals(): Promise<WalkTotals>;
  auditTotals(): Promise<AuditTotals>;
  /** Whether `complete` is true, decided and recorded by one statement. An audit is promoted with it. */
  claim(evidence: object): Promise<boolean>;
  /** Records any other verdict and closes the walk. */
  settle(verdict: Exclude<Verdict, 'complete'>, evidence: object): Promise<void>;
  /** Lets go of the lease at once, so that a successor need not wait for its end. */
  release(): Promise<void>;

  /** What is stored of these heights in the epoch; whether a chain proves that nothing else was there. */
  checkpointsAt(heights: readonly string[]): Promise<ReadonlyMap<string, HeightOnRecord>>;
  /** The lowest and the highest checkpoint of the epoch. */
  heightsOnRecord(): Promise<{ readonly lowest: bigint; readonly highest: bigint } | undefined>;
  /** How many of these parties are known in any epoch, and whether any party is. */
  knownParties(ids: readonly string[]): Promise<{ readonly known: number; readonly anyOnRecord: boolean }>;
  /** Begins the next epoch for both lists and moves this walk, which has no page yet, there. */
  beginEpoch(evidence: object): Promise<void>;
}

export interface HeightOnRecord {
  readonly blockHashes: readonly string[];
  readonly proven: boolean;
}

export interface SessionRequest {
  readonly list: ListName;
  readonly runId: string;
  readonly kind: WalkKind;
  readonly baseUrl: string;
}

export interface WalkBooks {
  /**
   * Opens a new walk, or takes over one that was left, under a new lease.
   * @returns undefined while another worker has it
   */
  open(request: SessionRequest, signal: AbortSignal): Promise<WalkSession | undefined>;
  /** Stores one party that was looked up; it gets no place by that. */
  keepParty(row: ListedRow): Promise<{ readonly wasKnown: boolean }>;
}

/** Hints that may vanish: where each walk stands. Postgres decides where they differ. */
export interface WalkHints {
  get(key: string): Promise<unknown>;
  set(key: string, value: unknown, ttlMs: number): Promise<void>;
}
