/** What the read API needs from the rest of the mirror. */
import type { Registry } from 'prom-client';
import type { Completeness } from '../../runs/store/completeness.ts';
import type { RunDocument } from '../../runs/run-document.ts';
import type { Micros } from '../../core/time.ts';
import type { Verdict } from '../../core/verdict.ts';

/** Which way a page extends from its cursor. `forward` is further down the list as the client reads it. */
export type Direction = 'forward' | 'backward';

/** A slice of a list in one direction from a position, in the order in which it is read. */
export interface SliceQuestion<Position> {
  readonly epoch: number;
  /** true: towards higher positions (newer rows). */
  readonly ascending: boolean;
  /** Rows strictly beyond it. Absent: from the list's end. */
  readonly beyond: Position | undefined;
  readonly rowsMax: number;
}

/** Of a place in a `PartySlice`. */
export const PLACE_BYTES = 8;

/** Rows of the party list by column: a thousand objects would take as long as all the rest of a page. */
export interface PartySlice {
  /** Canonical, as everything that enters the mirror is: letters and digits, which need no escape. */
  readonly ids: readonly string[];
  /** Where each stands in the source's order: a signed integer of `PLACE_BYTES`, the highest byte first. */
  readonly places: Buffer;
}

/**
 * One of the equal checkpoints that the source lists: `copy` counts them from 0, so that every row of
 * the list has a position of its own.
 */
export interface CheckpointRow {
  readonly atBlock: string;
  readonly hash: string;
  readonly blockHash: string;
  readonly copy: number;
}

/** How the served lists stand: which life of the chain they are of, and as of which block. */
export interface ListState {
  readonly epoch: number;
  /** The source's last block when the newest row was read; undefined before the first sync. */
  readonly headHeight: bigint | undefined;
  readonly headTime: Micros | undefined;
  /** Whether the list was ever read to its end. A first reading is served as far as it has come. */
  readonly isComplete: boolean;
}

/** The mirrored lists. Every question is answered from an index, at the same cost at any depth. */
export interface ListStore {
  state(list: 'parties' | 'checkpoints'): Promise<ListState>;
  parties(question: SliceQuestion<bigint>): Promise<PartySlice>;
  /** The place of one party; `null` for the network's own, which is listed but has none. */
  party(epoch: number, id: string): Promise<{ pos: bigint | null } | undefined>;
  checkpoints(question: SliceQuestion<CheckpointRow>): Promise<readonly CheckpointRow[]>;
  /** 32 bytes that no client knows, the same for every process of this mirror. */
  cursorSecret(): Promise<Buffer>;
}

export type JobState = 'queued' | 'running' | 'done' | 'cancelled';

/** What `POST /mirror/runs` asks for. */
export interface RunOrder {
  readonly kind: 'nightly' | 'sync' | 'audit' | 'load' | 'verify';
  readonly list: 'parties' | 'checkpoints' | 'all';
  readonly rebuild: boolean;
  readonly deep: boolean;
  readonly onConflict: 'attach' | 'fail';
}

export interface RunOrders {
  /**
   * @param key the same key is the same run; `hash` is of what was asked for
   * @throws StatusError 409, 422 or 503
   */
  start(
    order: RunOrder,
    key: { readonly name: string; readonly hash: string } | undefined,
  ): Promise<{ readonly runId: string; readonly isNew: boolean }>;
  /** Has no effect on a run that has ended. */
  cancel(runId: string): Promise<void>;
  /** Live counts, for people. */
  progress(runId: string): Promise<readonly unknown[]>;
}

export interface StreamStatus {
  readonly name: 'parties' | 'checkpoints' | 'ledger';
  /** Of the last run that ended; null where none has. */
  readonly verdict: Verdict | null;
  readonly checkedAt: string | null;
  /** Decimal text; the source's block that the stream is proven up to. */
  readonly asOfBlock: string | null;
  readonly asOfTime: string | null;
  /** Decimal text: distinct rows of a list, entries of the ledger's current segments. */
  readonly rows: string;
}

/** How the work stands. Times are RFC 3339. */
export interface WorkFacts {
  /** Long-lived processes that work jobs. */
  readonly workers: number;
  /** Null where nobody is there to begin it. */
  readonly nextSlot: string | null;
  /** A scheduled night that never began; a worker makes it up within a minute. */
  readonly missedSlot: string | null;
}

/** What is known against a list. Times are RFC 3339. */
export interface ListFacts {
  readonly list: 'parties' | 'checkpoints';
  readonly doubts: readonly { readonly code: string; readonly message: string; readonly since: string }[];
  readonly gaps: readonly {
    readonly belowKey: string;
    readonly aboveKey: string;
    readonly foundAt: string;
    /** An audit has found that the source does not serve the rows. */
    readonly isConfirmed: boolean;
  }[];
  /** When the list was last read from its oldest row on; null before the first complete reading. */
  readonly lastAuditAt: string | null;
}

/** Everything the console's first glance needs, in one consistent reading. */
export interface MirrorFacts {
  readonly sourceUrl: string | null;
  readonly epoch: number;
  readonly streams: readonly StreamStatus[];
  /** Decimal texts. */
  readonly ledger: {
    readonly segments: string;
    readonly bytes: string;
    readonly parties: string;
    readonly notLoaded: string;
    readonly quarantined: string;
  };
  /** Which ledgers are covered: the one reading that every sentence about completeness goes by. */
  readonly coverage: Completeness;
  readonly knownGaps: string;
  /** Both lists; absent where nobody asks for them. */
  readonly lists?: readonly ListFacts[];
  readonly openRuns: string;
  /** Of the last verification that somebody ordered; null where none was. */
  readonly lastVerify: { readonly verdict: Verdict; readonly at: string; readonly runId: string } | null;
  /** Absent where only the stores were asked. */
  readonly work?: WorkFacts;
  /** Who decides the lake's commits: the database where the object store would let two writers put one. */
  readonly lakeCommitsDecidedBy?: 'store' | 'database';
}

export interface RunsQuestion {
  readonly kind?: string | undefined;
  /** Runs queued before this one. */
  readonly before?: string | undefined;
  readonly rowsMax: number;
}

export interface StatusStore {
  facts(): Promise<MirrorFacts>;
  /** Newest first. */
  runs(question: RunsQuestion): Promise<readonly RunDocument[]>;
  run(runId: string): Promise<RunDocument | undefined>;
  /** A page of a run's log lines, oldest first; `after` is `next` of the page before. */
  logs(runId: string, rowsMax: number, after: string): Promise<RunLogPage>;
}

export interface RunLogPage {
  readonly lines: readonly {
    readonly at: string;
    readonly level: string;
    readonly message: string;
    readonly fields: Readonly<Record<string, unknown>>;
  }[];
  readonly next: string | undefined;
}

export interface LedgerQuestion {
  readonly partyId: string;
  /** Absent: every asset. */
  readonly assetId: string | undefined;
  /** Whole seconds, half-open, by the rows' `vega_time`. */
  readonly from: Micros | undefined;
  readonly to: Micros | undefined;
  /** All of it must be covered by closed segments that are believed, up to its end. */
  readonly isProofNeeded?: boolean | undefined;
}

export interface ExportReader {
  /**
   * The plain CSV of a party's mirrored ledger: one header line, then the source's lines unchanged,
   * those outside the question left out. Nothing is read before the first chunk is asked for; ending
   * the iteration early, or aborting, releases everything.
   * @throws PermanentError `LEDGER_NOT_MIRRORED` where what is asked for was never exported, or
   *   misses a range: an empty answer would read as "no entries"
   */
  read(question: LedgerQuestion, signal: AbortSignal): AsyncIterable<Buffer>;
}

export interface ExportOrder {
  readonly partyId: string;
  readonly assetId: string | undefined;
  readonly from: Micros | undefined;
  readonly to: Micros | undefined;
  /** What is covered in the range is not believed, and asked for anew. */
  readonly again?: boolean | undefined;
}

export interface ExportStatus {
  readonly id: string;
  readonly state: JobState;
  readonly verdict: Verdict | null;
  readonly evidence: Readonly<Record<string, unknown>>;
}

/** One line of the history of orders. Times are RFC 3339; null where the order named none. */
export interface OrderRecord extends ExportStatus {
  readonly partyId: string;
  readonly assetId: string | null;
  readonly from: string | null;
  readonly to: string | null;
  readonly queuedAt: string;
  readonly finishedAt: string | null;
}

export interface OrdersQuestion {
  readonly partyId?: string | undefined;
  /** Orders older than this one. */
  readonly before?: string | undefined;
  readonly rowsMax: number;
}

export interface ByteRange {
  readonly start: bigint;
  /** Exclusive. */
  readonly end: bigint;
}

/** The CSV that an order brought, whole. */
export interface Download {
  readonly fileName: string;
  readonly bytes: bigint;
  /** Names the content: the same tag, the same bytes. */
  readonly tag: string;
  read(range: ByteRange, signal: AbortSignal): AsyncIterable<Buffer>;
}

/** On-demand exports. An id is the run's id, a UUID. */
export interface ExportJobs {
  /** An order that is already open is not queued again: its id is returned. */
  submit(order: ExportOrder): Promise<{ id: string }>;
  get(id: string): Promise<ExportStatus | undefined>;
  /** Newest first. */
  list(question: OrdersQuestion): Promise<readonly OrderRecord[]>;
  /** Has no effect on an order that has ended. @returns false where there is no such order */
  cancel(id: string): Promise<boolean>;
  /** The state now, then each change, ending with the order or the signal. Values are JSON-able. */
  progress(id: string, signal: AbortSignal): AsyncIterable<Readonly<Record<string, unknown>>>;
  /**
   * undefined while the order has not ended with something to download.
   * @throws StatusError 429 where too many files are being made already
   */
  openDownload(id: string): Promise<Download | undefined>;
}

/** One thing that must work for this process to do its work. */
export interface Probe {
  readonly name: string;
  /** Rejects where it does not work. */
  check(signal: AbortSignal): Promise<unknown>;
}

/** The metrics of the whole process: the API's own are added to them, and all are told at `/metrics`. */
export interface ProcessMeters {
  add(source: { collect(): Promise<Registry> }): void;
  text(): Promise<string>;
}
