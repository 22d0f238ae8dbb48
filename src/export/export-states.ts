/** The run of one export: its states, and where each event of a state leads. */
import type * as machine from './state-machine.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Outgrown, Received } from './fetch/receive.ts';
import type { Probe } from './fetch/probe.ts';
import type { AskPlan } from './plan/remaining.ts';
import type { Coverage } from './store/coverage-rows.ts';
import type { SourceProfile } from './store/source-profile.ts';
import type { WindowRequest } from './ports.ts';

export interface Planned {
  readonly plan: AskPlan;
  readonly coverage: readonly Coverage[];
  readonly profile: SourceProfile;
}

export interface Answered extends Planned {
  /** What was asked: the plan's request, or after a doubt another that must hold the same. */
  readonly request: Pick<WindowRequest, 'from' | 'to'>;
  readonly received: Received;
  /** Before the answer was read. */
  readonly before: SourceProfile;
}

export interface Publishing extends Answered {
  /** `open`: what came contradicts what is known; it is shown, and asked for again. */
  readonly as: 'closed' | 'open';
}

export interface Ended {
  readonly verdict: Verdict;
  readonly evidence: Readonly<Record<string, unknown>>;
}

/** What a state knows. */
export interface States {
  recovering: object;
  planning: object;
  probing: { readonly probe: Probe; readonly profile: SourceProfile };
  requesting: Planned;
  shrinking: { readonly plan: AskPlan; readonly outgrown: Outgrown };
  judging: Answered;
  publishing: Publishing;
  ended: Ended;
}

/** How the work of a state may end. */
export interface Events {
  recovering: { recovered: object };
  planning: {
    covered: Ended;
    planned: Planned;
    unproven: States['probing'];
    /** Requests came to nothing too often. */
    exhausted: Ended;
  };
  probing: { probed: object };
  requesting: { received: Answered; outgrown: States['shrinking']; refused: object };
  shrinking: { divided: object; contradicted: Ended };
  judging: {
    believed: Answered;
    /** Asked again, in another way. */
    doubted: object;
    /** Asked in every way: what is new is shown, and stays open. */
    contradicted: Answered;
    /** Nothing new came either. */
    refused: Ended;
  };
  publishing: {
    published: object;
    'published the last': Ended;
    /** It would take more than it brings: what is known is kept. */
    doubted: object;
  };
}

type State = machine.StateOf<States>;
export type EventOf<Name extends keyof Events> = machine.EventOf<Events[Name]>;

const plan = (): State => ({ name: 'planning', data: {} });
const end = (data: Ended): State => ({ name: 'ended', data });

export const TRANSITIONS: machine.Transitions<States, Events> = {
  recovering: { recovered: plan },
  planning: {
    covered: end,
    planned: (data) => ({ name: 'requesting', data }),
    unproven: (data) => ({ name: 'probing', data }),
    exhausted: end,
  },
  probing: { probed: plan },
  requesting: {
    received: (data) => ({ name: 'judging', data }),
    outgrown: (data) => ({ name: 'shrinking', data }),
    refused: plan,
  },
  shrinking: { divided: plan, contradicted: end },
  judging: {
    believed: (data) => ({ name: 'publishing', data: { ...data, as: 'closed' } }),
    doubted: plan,
    contradicted: (data) => ({ name: 'publishing', data: { ...data, as: 'open' } }),
    refused: end,
  },
  publishing: { published: plan, 'published the last': end, doubted: plan },
};
