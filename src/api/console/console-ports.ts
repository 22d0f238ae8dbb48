/** What the console needs from the rest of the mirror, beside what the read API has anyway. Times are RFC 3339. */
import type { MirrorStatus } from '../mirror/glance.ts';
import type { LakeQueries } from './lake-queries.ts';
import type { ShownSetting } from '../../config/shown-settings.ts';
import type { ProgressLine } from '../../runs/progress-line.ts';
import type { RunDocument } from '../../runs/run-document.ts';
import type { NightlyPreview } from '../../runs/nightly/nightly-preview.ts';

export interface ExportName {
  readonly partyId: string;
  readonly assetId: string | null;
}

export interface QuarantinedExport extends ExportName {
  readonly exportId: string;
  readonly since: string;
  readonly attempts: number;
  readonly reason: { readonly code?: string; readonly message?: string } | null;
}

/** How far a nightly run has come with its list of parties. */
export interface NightlyCounts {
  readonly runId: string;
  readonly waiting: number;
  readonly done: number;
  readonly failed: number;
  readonly deferred: number;
  readonly firstAt: string | null;
}

/** What is going on now, in one consistent reading that costs the same however large the mirror is. */
export interface LiveFacts {
  readonly now: string;
  /** Processes that work jobs and were heard of lately. */
  readonly workers: number;
  /** Runs that have not ended, oldest first; no more than a page can show. */
  readonly openRuns: readonly RunDocument[];
  readonly inFlight: readonly ExportName[];
  /** The first of them. */
  readonly quarantined: readonly QuarantinedExport[];
  readonly nightly: NightlyCounts | null;
  /** Another text whenever a run began or ended, or something was published. */
  readonly revision: string;
}

/** A range of time in which a ledger is known. */
export interface Covered {
  readonly from: string;
  readonly to: string;
  readonly open: boolean;
  /** Decimal text; null where the range is known to hold no entry. */
  readonly rows: string | null;
}

export interface LedgerLine extends ExportName {
  readonly state: 'in flight' | 'quarantined' | 'published';
  readonly covered: readonly Covered[];
  readonly firstEntryAt: string | null;
}

export interface GrowthPoint {
  readonly at: string;
  /** Published in the time that begins at `at`; decimal text. */
  readonly rows: string;
  readonly bytes: string;
}

export interface NightlyRun extends Pick<RunDocument, 'runId' | 'finishedAt' | 'state' | 'verdict'> {
  readonly at: string;
}

export interface History {
  readonly growth: readonly GrowthPoint[];
  readonly nightlyRuns: readonly NightlyRun[];
}

export type PartyView = 'recent' | 'id' | 'quarantined';

export interface PartiesQuestion {
  readonly view: PartyView;
  /** The beginning of an id; only with the view `id`. */
  readonly prefix: string;
  /** Its end, where it was cut; empty otherwise. */
  readonly suffix: string;
  /** Where the page before ended. */
  readonly after: string | undefined;
  readonly rowsMax: number;
}

export interface PartySummary {
  readonly partyId: string;
  readonly rows: string;
  readonly bytes: string;
  readonly lastEntryAt: string | null;
  /** Everything up to here is known; null where nothing was ever asked. */
  readonly knownTo: string | null;
  readonly quarantinedAt: string | null;
}

export interface PartyPage {
  readonly parties: readonly PartySummary[];
  readonly next: string | null;
}

export interface Account {
  readonly assetId: string;
  readonly accountType: string;
  readonly marketId: string | null;
  readonly entries: string;
  readonly lastAt: string;
}

export interface PartyLedger extends PartySummary {
  readonly firstSeenAt: string | null;
  /** The source's release exports only what a party sends. */
  readonly isSentOnly: boolean;
  readonly covered: readonly Covered[];
  /** Accounts, their types and the charts are of at most so many of its newest entries. */
  readonly summedMax: number;
  /** The busiest first. */
  readonly accounts: readonly Account[];
  readonly transferTypes: readonly string[];
}

export interface FlowDay {
  readonly day: string;
  readonly received: string;
  readonly sent: string;
  readonly entries: string;
}

export interface BalancePoint {
  readonly at: string;
  readonly balance: string;
}

export interface AccountQuestion {
  readonly partyId: string;
  readonly assetId: string;
  readonly accountType: string;
  readonly marketId: string | undefined;
  readonly pointsMax: number;
}

export interface EntriesQuestion {
  readonly partyId: string;
  readonly assetId?: string | undefined;
  readonly transferType?: string | undefined;
  /** Days of UTC, both included. */
  readonly since?: string | undefined;
  readonly until?: string | undefined;
  /** The instant that the page before ended at, and how many of its rows were shown. */
  readonly after?: { readonly at: string; readonly seen: number } | undefined;
  readonly rowsMax: number;
}

/** An entry as it was exported for the party; amounts are decimal text. */
export interface EntryRow {
  readonly at: string;
  readonly transferType: string;
  readonly assetId: string;
  readonly quantity: string;
  readonly fromParty: string | null;
  readonly fromAccount: string | null;
  readonly fromBalance: string | null;
  readonly toParty: string | null;
  readonly toAccount: string | null;
  readonly toBalance: string | null;
}

export interface EntriesPage {
  readonly entries: readonly EntryRow[];
  readonly next: string | null;
}

/** What a stage of a run asked the source, and how long it took. Counts are decimal text. */
export interface StageCost {
  readonly stage: string;
  readonly requests: string;
  readonly retries: string;
  readonly bytes: string;
  readonly seconds: number;
}

/** What an operator looks after beside the runs. */
export interface Upkeep {
  /** Jobs that wait in the queues; null where they cannot be asked. */
  readonly jobsWaiting: number | null;
  /** Of the one that waits the longest, in seconds. */
  readonly oldestSeconds: number;
  /** When the lists are next read again from their oldest row; null where nothing is scheduled. */
  readonly nextAudit: string | null;
  /** Where DATA_DIR lies; decimal text, null where it cannot be told. */
  readonly diskFreeBytes: string | null;
  readonly diskBytes: string | null;
}

export interface ConsoleStore {
  live(): Promise<LiveFacts>;
  /** Ledgers that are in flight, quarantined, or were published last, in this order. */
  lines(linesMax: number): Promise<readonly LedgerLine[]>;
  history(): Promise<History>;
  parties(question: PartiesQuestion): Promise<PartyPage>;
  party(partyId: string): Promise<PartyLedger | undefined>;
  /** @param zone an IANA time zone, whose days are meant */
  flows(partyId: string, assetId: string, zone: string): Promise<readonly FlowDay[]>;
  /** The last balance of each of `pointsMax` equal parts of the account's time. */
  balance(question: AccountQuestion): Promise<readonly BalancePoint[]>;
  /** Newest first. */
  entries(question: EntriesQuestion): Promise<EntriesPage>;
  /** In the order of the stages; none of an unknown run. */
  costs(runId: string): Promise<readonly StageCost[]>;
  /** Those quarantined last come first. */
  quarantined(rowsMax: number): Promise<readonly QuarantinedExport[]>;
}

export interface ConsoleParts {
  readonly store: ConsoleStore;
  readonly lake: LakeQueries;
  readonly settings: readonly ShownSetting[];
  /** The next time the schedule fires; null where nothing is scheduled. */
  nextNightlyRun(): string | null;
  progress(runId: string): Promise<readonly ProgressLine[]>;
  /** Of an export that is in flight, whoever ordered it. */
  exportProgress(partyId: string): Promise<readonly ProgressLine[]>;
  /** What a nightly run that began now would ask the source. */
  preview(): Promise<NightlyPreview>;
  upkeep(): Promise<Upkeep>;
}

export interface LiveRun extends Omit<RunDocument, 'evidence'> {
  readonly progress: readonly ProgressLine[];
}

/** What the event stream sends: everything that moves. */
export interface Snapshot extends Omit<LiveFacts, 'openRuns' | 'inFlight'> {
  readonly status: MirrorStatus;
  readonly nextNightlyRun: string | null;
  readonly upkeep: Upkeep;
  readonly live: readonly LiveRun[];
  readonly inFlight: readonly (ExportName & { readonly progress: readonly ProgressLine[] })[];
}
