/**
 * Decides what an export does next, as a pure state machine: `next(state, event)`
 * returns the new state and one decision. `run-export.ts` carries out the decisions,
 * and reports their results as events. Nothing here reads, writes or waits.
 *
 *                 planned                   answered
 *   planning ──────────────► requesting ──────────────► publishing
 *    ▲  ▲  │ needs a probe     │                          │   │ nothing is left
 *    │  │  ▼                   │ doubted, cancelled,      │   ▼
 *    │ probing                 │ refused                  │  done
 *    │                         ▼                          │
 *    └──────────────────── planning ◄─────────────────────┘ more is left, or the response
 *                                                           has less than is known
 *
 * A doubt is a reason not to believe a response. `plan` keeps the doubts about the
 * responses to one plan. While there are any, the next request is a different one that
 * must return the same rows.
 */
import type { Coverage } from '../catalog/coverage-rows.ts';
import type { Verdict, VerdictWithEvidence } from '../errors/verdict.ts';
import type {
  AnswerFacts,
  Doubt,
  PublishedFacts,
} from './validation/assess-answer.ts';

/**
 * Maximum number of consecutive requests that publish nothing before the export stops.
 */
export const FRUITLESS_MAX = 8;
/**
 * Maximum number of requests of an export in one run. With the default segment size,
 * that is enough for most of a terabyte.
 */
export const REQUESTS_MAX = 1_000;
/**
 * Maximum number of requests for one plan. If the last response raises a doubt, no
 * further request checks it.
 */
export const REQUESTS_PER_PLAN_MAX = 3;
/**
 * The same limit for a plan if one of its responses had fewer rows than an earlier
 * response showed. The nodes behind the source's address then serve different rows, and
 * the next request may reach a node that has the missing rows.
 */
export const REQUESTS_PER_SHOWN_MAX = 7;
/**
 * Number of consecutive runs that must contradict known rows before the source is
 * believed.
 */
export const CONTRADICTIONS_MAX = 3;

/** The findings of a run so far, over all plans. */
export interface RunFindings {
  /** The number of consecutive requests that published nothing. */
  readonly fruitless: number;
  /**
   * The number of consecutive runs, before this one, in which the source contradicted
   * known rows.
   */
  readonly contradictionsBefore: number;
  /** `contradictionsBefore` plus this run; 0 if this run found no contradiction. */
  readonly contradictions: number;
  /** Ids of the coverage rows that are kept although the source contradicts them. */
  readonly kept: ReadonlySet<bigint>;
  /**
   * Ids of the coverage rows to request again. A row stays unchanged if the source
   * returns the same entries.
   */
  readonly audited: ReadonlySet<bigint>;
  readonly verdicts: readonly Verdict[];
  /** Every doubt of the run, in order. */
  readonly doubts: readonly Doubt[];
  /** The result of the last overlap check; 'none' if no plan had one. */
  readonly overlap: string | undefined;
}

/**
 * The findings from the responses to the current plan. The next plan begins without
 * them.
 */
export interface PlanFindings {
  readonly doubts: readonly Doubt[];
  readonly requests: number;
  /** The `sums` of the last response. */
  readonly lastSums: string | undefined;
  /**
   * Whether to accept that the ledger has no outgoing entries. True once no other form of
   * the request could return any.
   */
  readonly isEmptyBelieved: boolean;
}

export type PublishAs = 'closed' | 'open';

interface Findings {
  readonly run: RunFindings;
  readonly plan: PlanFindings;
}

export type ExportState = Findings &
  (
    | { readonly kind: 'planning' | 'probing' | 'requesting' }
    | {
        readonly kind: 'publishing';
        readonly as: PublishAs;
        /** Whether nothing is left to request once the response is published. */
        readonly isLast: boolean;
      }
    | { readonly kind: 'done' }
  );

export type ExportEvent =
  /** The ranges that are left to request were computed from the coverage. */
  | {
      readonly kind: 'planned';
      /** Whether anything is left to request. */
      readonly isLeft: boolean;
      /**
       * Whether a probe must first show that the source applies the end that the plan
       * wants.
       */
      readonly needsProbe: boolean;
      /** The number of requests that the run has sent so far. */
      readonly requests: number;
    }
  | { readonly kind: 'probed' }
  /** The source refuses requests without a start and an end. */
  | { readonly kind: 'refused' }
  /** The response outgrew a segment and was cancelled; the next plan is smaller. */
  | { readonly kind: 'cancelled'; readonly hasLeaving: boolean }
  | { readonly kind: 'answered'; readonly facts: AnswerFacts }
  | { readonly kind: 'published'; readonly facts: PublishedFacts }
  /** Nothing was published, because these segments would have lost rows. */
  | { readonly kind: 'shrunk'; readonly rows: readonly Coverage[] };

/**
 * How to send the request for a plan. `fallback` sends a different request that must
 * return the same rows; `startless fallback` does so without a start.
 */
export type RequestWay = 'primary' | 'fallback' | 'startless fallback';

/** A finding about the source's release from a response. It applies to all exports. */
export type Lesson =
  /**
   * Known rows were not returned, so the way that the source filters must be proven
   * again.
   */
  | 'distrust bounds'
  /**
   * A request with only a start returned outgoing entries of a party, but one with a
   * start and an end did not.
   */
  | 'bounds are broken';

export type Decision =
  /** Recompute which ranges are left to request. */
  | {
      readonly do: 'plan';
      /** Whether to discard the rows of the last response. */
      readonly discards: boolean;
      readonly learns?: Lesson | undefined;
      /** Coverage that is kept although the response has fewer rows, and the reason. */
      readonly keeps?: {
        readonly rows: readonly Coverage[];
        readonly reason: string;
      };
    }
  | { readonly do: 'probe' }
  | {
      readonly do: 'request';
      readonly way: RequestWay;
      /**
       * How many consecutive requests have published nothing. The pause before this
       * request grows with that number.
       */
      readonly fruitless: number;
    }
  | {
      readonly do: 'publish';
      readonly as: PublishAs;
      readonly isLast: boolean;
      readonly learns?: Lesson | undefined;
    }
  | {
      readonly do: 'finish';
      readonly outcome: VerdictWithEvidence;
      readonly learns?: Lesson | undefined;
    };

export type Transition = readonly [ExportState, Decision];

/** Doubts about a single request, as opposed to how the release filters. */
const CONCERNS_ONE_REQUEST: ReadonlySet<Doubt['state']> = new Set([
  'nothing left',
  'start unproven',
  'end unproven',
  'less than shown',
]);
/**
 * Doubts after which the same request is sent again. A response that may have been cut
 * off proves nothing until a second one is identical. A response that lacks rows that the
 * source has shown does not prove that these rows are gone.
 */
const PROVES_NOTHING: ReadonlySet<Doubt['state']> = new Set([
  'end unproven',
  'less than shown',
]);
/** Doubts that make a run suspicious even if a later response resolves them. */
const SURPRISES: ReadonlySet<Doubt['state']> = new Set([
  'other',
  'less than seen',
  'less than shown',
]);
const NEW_PLAN: PlanFindings = {
  doubts: [],
  requests: 0,
  lastSums: undefined,
  isEmptyBelieved: false,
};
const UNLISTED = {
  reason:
    "the source's list did not show this party when it was last read, and the response " +
    'has no entries: the party may have a different id by now; the next ' +
    'run requests it again',
};
const COMPLETE: VerdictWithEvidence = { verdict: 'complete', evidence: {} };

/**
 * Returns the state before the first plan.
 * @param audited ids of the coverage rows to request again
 * @param contradictionsBefore number of consecutive earlier runs that contradicted
 *   known rows
 */
export function initialState(
  audited: Iterable<bigint>,
  contradictionsBefore: number,
): ExportState {
  const run: RunFindings = {
    fruitless: 0,
    contradictionsBefore,
    contradictions: 0,
    kept: new Set(),
    audited: new Set(audited),
    verdicts: [],
    doubts: [],
    overlap: undefined,
  };
  return { kind: 'planning', run, plan: NEW_PLAN };
}

/**
 * Returns the next state and the decision for an event.
 * @throws TypeError if the event cannot happen in this state
 */
export function next(state: ExportState, event: ExportEvent): Transition {
  const name = `${state.kind} ${event.kind}`;
  if (state.kind === 'planning' && event.kind === 'planned')
    return planned(state, event);
  if (state.kind === 'probing' && event.kind === 'probed')
    return planAgain(state);
  if (state.kind === 'requesting') {
    if (event.kind === 'refused') return planAgain(state);
    if (event.kind === 'cancelled') return cancelled(state, event.hasLeaving);
    if (event.kind === 'answered') return answered(state, event.facts);
  }
  if (state.kind === 'publishing') {
    if (event.kind === 'published') return published(state, event.facts);
    if (event.kind === 'shrunk') return keep(state, event.rows);
  }
  throw new TypeError(`an export cannot go on: unexpected event "${name}"`);
}

function planned(
  { run, plan }: Findings,
  { isLeft, needsProbe, requests }: ExportEvent & { kind: 'planned' },
): Transition {
  if (!isLeft) {
    const evidence = requests === 0 ? { covered: true } : {};
    return finish({ run, plan }, { verdict: 'complete', evidence });
  }
  if (run.fruitless >= FRUITLESS_MAX || requests >= REQUESTS_MAX) {
    const reason =
      `the source was asked ${requests} times, the last ${run.fruitless} ` +
      'in vain; the next run continues';
    return finish(
      { run, plan },
      { verdict: 'incomplete', evidence: { reason } },
    );
  }

  const counted = { ...run, fruitless: run.fruitless + 1 };
  if (needsProbe)
    return [{ kind: 'probing', run: counted, plan }, { do: 'probe' }];
  const requesting: ExportState = {
    kind: 'requesting',
    run: counted,
    plan: { ...plan, requests: plan.requests + 1 },
  };
  return [
    requesting,
    { do: 'request', way: requestWay(plan), fruitless: run.fruitless },
  ];
}

/**
 * Returns how to send the next request: after one doubt, in a different way; after two,
 * in the same way as the first request.
 */
function requestWay({ doubts, isEmptyBelieved }: PlanFindings): RequestWay {
  const [first] = doubts;
  if (first === undefined || doubts.length > 1 || isEmptyBelieved)
    return 'primary';
  if (PROVES_NOTHING.has(first.state)) return 'primary';
  return first.state === 'start unproven' ? 'startless fallback' : 'fallback';
}

/**
 * Decides what to do after a cancelled response. If the request was sent to resolve a
 * doubt, a response too large for a segment cannot resolve it.
 */
function cancelled({ run, plan }: Findings, hasLeaving: boolean): Transition {
  const doubt = plan.doubts.at(-1);
  if (doubt === undefined) return planAgain({ run, plan });
  if (doubt.state !== 'nothing left')
    return finish({ run, plan }, { verdict: 'suspicious', evidence: {} });
  if (hasLeaving)
    return planAgain({ run, plan }, { learns: 'bounds are broken' });
  return planAgain({ run, plan: { ...plan, isEmptyBelieved: true } });
}

function answered(state: Findings, facts: AnswerFacts): Transition {
  const { plan } = state;
  if (facts.isOutdated && plan.requests < REQUESTS_PER_PLAN_MAX)
    return planAgain(state, { discards: true });

  if (facts.mayBeUnknown)
    return finish(state, { verdict: 'incomplete', evidence: UNLISTED });

  const isProven = facts.isFramed || plan.lastSums === facts.sums;
  const compared: Findings = {
    run: { ...state.run, overlap: facts.overlap ?? state.run.overlap },
    plan: { ...plan, lastSums: facts.sums },
  };
  const doubt = doubtOf(plan, facts, isProven);
  if (doubt !== undefined) return doubted(compared, { doubt, facts, isProven });
  if (facts.shrunk.length > 0) return keep(compared, facts.shrunk);
  return believed(compared, facts);
}

function doubtOf(
  plan: PlanFindings,
  facts: AnswerFacts,
  isProven: boolean,
): Doubt | undefined {
  if (facts.doubt !== undefined) return facts.doubt;
  if (facts.isNothingLeft && !plan.isEmptyBelieved)
    return { state: 'nothing left' };
  return isProven ? undefined : { state: 'end unproven' };
}

/**
 * Publishes a response that raises no doubt. It also resolves any doubt about an
 * earlier response to the plan.
 */
function believed({ run, plan }: Findings, facts: AnswerFacts): Transition {
  const first = plan.doubts[0]?.state;
  const learns =
    first === 'nothing left' && facts.hasLeaving
      ? 'bounds are broken'
      : undefined;
  // The first request had a start and did not return these rows.
  const isMissed = first === 'start unproven' && facts.hasClosedRows;
  return publish(
    { run: isMissed ? suspect(run) : run, plan },
    facts,
    'closed',
    learns,
  );
}

interface Doubted {
  readonly doubt: Doubt;
  readonly facts: AnswerFacts;
  readonly isProven: boolean;
}

function doubted(
  state: Findings,
  { doubt, facts, isProven }: Doubted,
): Transition {
  const doubts = [...state.plan.doubts, doubt];
  const run = { ...state.run, doubts: [...state.run.doubts, doubt] };
  const plan = { ...state.plan, doubts };
  const isLess = doubts.some((one) => one.state === 'less than shown');
  const requestsMax = isLess ? REQUESTS_PER_SHOWN_MAX : REQUESTS_PER_PLAN_MAX;
  const isLast = plan.requests >= requestsMax;
  if (PROVES_NOTHING.has(doubt.state) && !isLast)
    return planAgain({ run, plan }, { discards: true });

  const learns = CONCERNS_ONE_REQUEST.has(doubt.state)
    ? undefined
    : 'distrust bounds';
  const isTwice = doubts.length > 1;
  if (isLast || (isTwice && doubt.state !== 'other'))
    return contradicted({ run, plan }, { doubt, facts, isProven }, learns);
  // The same contradiction occurred twice. Request the known rows again, and replace
  // them if they differ.
  const audited = isTwice
    ? new Set([...run.audited, ...facts.compared])
    : run.audited;
  return planAgain(
    { run: { ...run, audited }, plan },
    { learns, discards: true },
  );
}

/**
 * Decides what to do with a response that contradicts known rows. Known rows are kept;
 * new rows conflict with nothing, so they are published as an open segment.
 */
function contradicted(
  { run, plan }: Findings,
  { doubt, facts, isProven }: Doubted,
  learns: Lesson | undefined,
): Transition {
  const isTimeless =
    doubt.state === 'fewer in the open segment' && !facts.hasTimes;
  if (isTimeless && isProven)
    return publish({ run: suspect(run), plan }, facts, 'closed', learns);
  // Whatever the doubt, rows that were received before are never replaced by fewer
  // rows.
  if (facts.openShrunk.length > 0) {
    const reason = 'rows of the last open segment have disappeared';
    return keep({ run, plan }, facts.openShrunk, { reason, learns });
  }

  const isEnd = doubt.state === 'end unproven';
  const verdict: Verdict = isEnd ? 'incomplete' : 'suspicious';
  const marked = { ...run, verdicts: [...run.verdicts, verdict] };
  const contradictions = run.contradictionsBefore + 1;
  const isGone =
    doubt.state === 'fewer' &&
    !facts.hasKnownRows &&
    facts.hasNewRows &&
    facts.isRested;
  const isAccepted =
    !isEnd && doubt.state !== 'other' && contradictions >= CONTRADICTIONS_MAX;
  if ((isGone || isAccepted) && isProven)
    return facts.shrunk.length > 0
      ? keep({ run: marked, plan }, facts.shrunk, { learns })
      : publish({ run: marked, plan }, facts, 'closed', learns);

  const counted = { ...marked, contradictions: isEnd ? 0 : contradictions };
  // A final line that may have been cut off does not count as a row.
  const isWhole = isProven || !facts.hasOpenLine;
  const mayShow =
    facts.hasNewRows &&
    isWhole &&
    !facts.replacesClosed &&
    doubt.state !== 'repeated';
  if (mayShow) return publish({ run: counted, plan }, facts, 'open', learns);
  const outcome: VerdictWithEvidence = {
    verdict: 'complete',
    evidence: { doubt },
  };
  return finish({ run: counted, plan }, outcome, learns);
}

function published(
  { run, plan, as, isLast }: ExportState & { kind: 'publishing' },
  { audited, hasForeignRows }: PublishedFacts,
): Transition {
  const isSurprise = plan.doubts.some(({ state }) => SURPRISES.has(state));
  const isSuspicious =
    hasForeignRows ||
    // The source now sends different rows for a range that was closed.
    audited.some(({ isSame }) => !isSame) ||
    (as === 'closed' && isSurprise);
  const answeredIds = new Set(audited.map(({ row }) => row.coverageId));
  const settled: RunFindings = {
    ...(isSuspicious ? suspect(run) : run),
    fruitless: 0,
    overlap: run.overlap ?? 'none',
    audited: new Set([...run.audited].filter((id) => !answeredIds.has(id))),
  };
  const state = { run: settled, plan: NEW_PLAN };
  return isLast ? finish(state, COMPLETE) : planAgain(state);
}

/** Keeps known coverage, and does not request it again in this run. */
function keep(
  { run }: Findings,
  rows: readonly Coverage[],
  options: {
    readonly reason?: string;
    readonly learns?: Lesson | undefined;
  } = {},
): Transition {
  const { reason = 'the source serves fewer of them than it did', learns } =
    options;
  const kept = new Set([
    ...run.kept,
    ...rows.map(({ coverageId }) => coverageId),
  ]);
  const state = { run: { ...suspect(run), kept }, plan: NEW_PLAN };
  return planAgain(state, { learns, discards: true, keeps: { rows, reason } });
}

function suspect(run: RunFindings): RunFindings {
  return { ...run, verdicts: [...run.verdicts, 'suspicious'] };
}

function planAgain(
  { run, plan }: Findings,
  how: Partial<Omit<Decision & { do: 'plan' }, 'do'>> = {},
): Transition {
  return [
    { kind: 'planning', run, plan },
    { do: 'plan', discards: false, ...how },
  ];
}

function publish(
  { run, plan }: Findings,
  facts: AnswerFacts,
  as: PublishAs,
  learns: Lesson | undefined,
): Transition {
  const isLast = as === 'open' || (!facts.isWindow && !facts.isFirstShown);
  return [
    { kind: 'publishing', run, plan, as, isLast },
    { do: 'publish', as, isLast, learns },
  ];
}

function finish(
  { run, plan }: Findings,
  outcome: VerdictWithEvidence,
  learns?: Lesson,
): Transition {
  return [
    { kind: 'done', run, plan },
    { do: 'finish', outcome, learns },
  ];
}
