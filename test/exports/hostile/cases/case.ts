/** A hostile case: what is true, what is answered, and which outcomes are right. */
import { makeLedger, type LedgerRecipe, type Entry } from '../ledger.ts';
import { THIRTEEN, writeCsv, type Layout } from '../layout.ts';
import { reply, type Reply } from '../reply.ts';

export type Verdict = 'complete' | 'incomplete' | 'suspicious' | 'failed';

/** What a mirror asks the export for. Bounds are microseconds; `to` is exclusive. */
export interface ExportRequest {
  readonly party: string;
  readonly asset?: string;
  readonly from?: bigint;
  readonly to?: bigint;
  /** How many requests for this party came before. */
  readonly n: number;
  /** The server's own address. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** `complete` means: exactly the truth, but where that cannot be known. */
export interface Expected {
  /** The right verdicts of `export`, the best one first. */
  readonly verdicts: readonly Verdict[];
  /**
   * What the ledger may hold under another verdict: rows of the truth, none twice too
   * often, or none at all.
   */
  readonly published: 'exactly' | 'at-most' | 'nothing';
  /** Rows that have to be published whatever the verdict is. */
  readonly mustHold?: (
    truth: readonly Entry[],
    now: bigint,
  ) => readonly Entry[];
  /**
   * Nothing that the run asks can show what is missing: `complete` over less than the
   * truth is no lie.
   */
  readonly cannotKnow: boolean;
  /** The most requests that one run may make for this party. */
  readonly maxRequests: number;
  /** What the sentence for people should tell. */
  readonly tells?: string;
}

export interface Phase {
  /** The source's clock, as hours from the world's now; `none`: it tells no time. */
  readonly clock: number | 'none';
  readonly truth: (now: bigint, party: string) => readonly Entry[];
  readonly answer: (
    request: ExportRequest,
    truth: readonly Entry[],
    now: bigint,
  ) => Reply;
  readonly expected: Expected;
  /** Rows of before that may stay beside the truth. */
  readonly mayStay?: Phase['truth'];
  /** The run distrusts what it has, and asks for everything anew. */
  readonly isAgain?: boolean;
}

/**
 * What a person has to set for a layout that is not known; the wiring gives these the
 * settings' names.
 */
export interface AnswerSettings {
  readonly delimiter?: string;
  readonly timeColumn?: string;
  readonly partyColumn?: string;
  readonly assetColumn?: string;
  readonly idForm?: string;
  readonly timeForm?: string;
}

export interface HostileCase extends Phase {
  readonly name: string;
  /** Absent: 64 hex digits, made from the name. */
  readonly party?: string;
  readonly meaning: string;
  /** Whether the true rows have an `effect`. */
  readonly hasEffect: boolean;
  /** Columns of the ledger that the source does not tell. */
  readonly lacks: readonly string[];
  readonly settings?: AnswerSettings;
  /** The assets that a person knows, where the source demands one. */
  readonly assets?: readonly string[];
  /**
   * What the case shows of its source a mirror believes of all parties: it shares a
   * source with its like alone.
   */
  readonly apart?: string;
  /** Ends only by the client's patience, which a test should shorten. */
  readonly isSlow: boolean;
  /** Sends more than 50 MB. */
  readonly isHeavy: boolean;
  readonly followedBy: readonly Phase[];
}

const NOT_COMPLETE: readonly Verdict[] = ['incomplete', 'failed', 'suspicious'];
const FEW = 12;

export const WHOLE: Expected = {
  verdicts: ['complete'],
  published: 'exactly',
  cannotKnow: false,
  maxRequests: FEW,
};
/** No answer can be used: nothing is published. */
export const REFUSED: Expected = {
  verdicts: NOT_COMPLETE,
  published: 'nothing',
  cannotKnow: false,
  maxRequests: FEW,
};
/** Some windows may be good; the whole is not. */
export const PARTLY: Expected = {
  verdicts: NOT_COMPLETE,
  published: 'at-most',
  cannotKnow: false,
  maxRequests: 60,
};
/** The documents do not say; only a lie is wrong. */
export const NO_LIE: Expected = {
  verdicts: ['complete', ...NOT_COMPLETE],
  published: 'at-most',
  cannotKnow: false,
  maxRequests: 60,
};
export const SUSPICIOUS: Expected = { ...PARTLY, verdicts: ['suspicious'] };

export const telling = (expected: Expected, tells: string): Expected => ({
  ...expected,
  tells,
});

/**
 * Rows in the window and of the asset that were asked for: half-open, by whole seconds as
 * the source has them.
 */
export function select(
  request: ExportRequest,
  truth: readonly Entry[],
): readonly Entry[] {
  return truth.filter(
    ({ time, asset }) =>
      (request.from === undefined || time >= request.from) &&
      (request.to === undefined || time < request.to) &&
      (request.asset === undefined || asset === request.asset),
  );
}

export function csvFor(
  request: ExportRequest,
  truth: readonly Entry[],
  layout: Layout = THIRTEEN,
): string {
  return writeCsv(layout, select(request, truth), request.party);
}

export const honestAnswer: Phase['answer'] = (request, truth) =>
  reply(csvFor(request, truth));

export interface Choice extends Partial<Omit<HostileCase, 'truth'>> {
  readonly ledger?: Partial<LedgerRecipe>;
  readonly truth?: Phase['truth'];
}

export function declare(
  name: string,
  meaning: string,
  answer: Phase['answer'],
  expected: Expected,
  choice: Choice = {},
): HostileCase {
  const { ledger, ...rest } = choice;
  return {
    name,
    meaning,
    clock: 0,
    truth: (now, party) => makeLedger(now, { seed: name, party, ...ledger }),
    answer,
    expected,
    hasEffect: true,
    lacks: [],
    isSlow: false,
    isHeavy: false,
    followedBy: [],
    ...rest,
  };
}

/** A case that differs from the honest one in the text of its CSV only. */
export function textCase(
  name: string,
  meaning: string,
  bend: (csv: string, request: ExportRequest) => string,
  expected: Expected,
  choice: Choice = {},
): HostileCase {
  return declare(
    name,
    meaning,
    (request, truth) => reply(bend(csvFor(request, truth), request)),
    expected,
    choice,
  );
}

/** A case that writes its rows in another layout. */
export function layoutCase(
  name: string,
  meaning: string,
  layout: Layout,
  expected: Expected,
  choice: Choice = {},
): HostileCase {
  const hasEffect = layout.columns.includes('effect');
  return declare(
    name,
    meaning,
    (request, truth) => reply(csvFor(request, truth, layout)),
    expected,
    {
      hasEffect,
      ...choice,
    },
  );
}
