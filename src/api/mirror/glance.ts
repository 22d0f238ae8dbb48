/** The mirror's state in one sentence, and what needs a person. Pure: the console and `status` show it. */
import type { MirrorFacts, StreamStatus } from '../http/ports.ts';

/** What a person should do something about, and what that is. */
export interface Attention {
  readonly what: string;
  readonly why: string;
  readonly todo: string;
  /** What the console's button does about it. */
  readonly action?: Action;
}

export type Action =
  | { readonly does: 'nightly' }
  | { readonly does: 'sync'; readonly list: 'parties' | 'checkpoints' }
  | { readonly does: 'evidence'; readonly kind: 'sync' | 'nightly'; readonly subject?: string }
  | { readonly does: 'ask again' };

export interface MirrorStatus extends MirrorFacts {
  /** Every list, and the ledger of every listed party, is proven complete and nothing of it was lost. */
  readonly whole: boolean;
  /** The same for what is configured: with NIGHTLY_PARTIES a part of the parties, and no more is claimed. */
  readonly complete: boolean;
  /** `network`, a party without a ledger, is one of the rows of the list of parties. */
  readonly hasNetwork: boolean;
  readonly sentence: string;
  readonly attention: readonly Attention[];
}

const LABELS: Readonly<Record<StreamStatus['name'], string>> = {
  parties: 'the list of parties',
  checkpoints: 'the list of checkpoints',
  ledger: 'the ledgers',
};

export function glance(facts: MirrorFacts): MirrorStatus {
  const { coverage } = facts;
  const isBegun = facts.streams.some((stream) => stream.verdict !== null);
  const attention = [
    ...facts.streams.flatMap((stream) => attentionOf(stream)),
    ...(isBegun && coverage.covered < coverage.wanted ? [uncovered(facts)] : []),
    ...(facts.lastVerify === null || facts.lastVerify.verdict === 'complete'
      ? []
      : [unverified(facts.lastVerify)]),
    ...doubts(facts),
    ...(facts.ledger.quarantined === '0' ? [] : [quarantined(facts.ledger.quarantined)]),
    ...gaps(facts),
  ];
  const { missedSlot, workers } = facts.work;
  const unproven = facts.streams.filter((stream) => stream.verdict !== 'complete');
  const complete = unproven.length === 0 && attention.length === 0;
  // A nightly run that is late makes the mirror older, not less complete.
  const all = missedSlot === null ? attention : [...attention, missed(missedSlot, workers)];
  return {
    ...facts,
    whole: complete && coverage.configured === null,
    complete,
    hasNetwork: facts.streams.some(
      ({ name, rows }) => name === 'parties' && BigInt(rows) === BigInt(coverage.listed) + 1n,
    ),
    sentence: sentence(facts, unproven, complete),
    attention: all,
  };
}

function sentence(facts: MirrorFacts, unproven: readonly StreamStatus[], complete: boolean): string {
  const { coverage } = facts;
  if (complete) return `The mirror is complete${scopeText(coverage)}${asOfText(facts)}.`;
  if (facts.streams.every((stream) => stream.verdict === null)) {
    return 'Nothing has been mirrored yet: no run has ended.';
  }
  const { covered, wanted } = coverage;
  const labels = unproven.map((stream) => LABELS[stream.name]);
  const isOne = labels.length === 1 && unproven[0]?.name !== 'ledger';
  const reasons = [
    ...(covered < wanted
      ? [`${count(covered)} of ${count(wanted)} ledgers ${covered === 1 ? 'is' : 'are'} covered`]
      : []),
    ...(labels.length > 0
      ? [`${new Intl.ListFormat('en').format(labels)} ${isOne ? 'is' : 'are'} not proven`]
      : []),
  ];
  const why = reasons.length === 0 ? 'what is in doubt or missing is named below' : reasons.join('; ');
  return `The mirror is not complete: ${why}.`;
}

/** What all three streams reach; nothing where one of them tells no time. */
function asOfText({ streams }: MirrorFacts): string {
  const times = streams.flatMap(({ asOfTime }) => asOfTime ?? []).toSorted();
  const [oldest] = times;
  return oldest === undefined || times.length < streams.length ? '' : ` as of ${minute(oldest)}`;
}

function scopeText({ configured }: MirrorFacts['coverage']): string {
  if (configured === null) return '';
  return ` for ${count(configured)} configured ${configured === 1 ? 'party' : 'parties'}`;
}

function count(value: number): string {
  return value.toLocaleString('en');
}

/** @param value a count, or one as decimal text */
export function plural(value: number | string, noun: string): string {
  return `${typeof value === 'number' ? count(value) : value} ${noun}${String(value) === '1' ? '' : 's'}`;
}

function minute(time: string): string {
  return `${time.slice(0, 16).replace('T', ' ')} UTC`;
}

function uncovered({ coverage: { covered, wanted, neverAsked }, openNightlyRun }: MirrorFacts): Attention {
  const missing = wanted - covered;
  const why =
    neverAsked === 0
      ? ''
      : `; ${count(neverAsked)} of them ${neverAsked === 1 ? 'was' : 'were'} never asked for`;
  const found = {
    what: `${plural(missing, 'ledger')} not covered`,
    why: `${count(covered)} of ${count(wanted)} are covered from the beginning on${why}`,
  };
  const others =
    neverAsked === missing
      ? ''
      : ' Why a ledger that was asked for is not covered is in the evidence of the last nightly run.';
  if (openNightlyRun !== null) return { ...found, todo: 'The nightly run under way asks for them.' };
  return {
    ...found,
    todo:
      'Run `ledger-mirror nightly`, or wait for the next nightly run; NIGHTLY_EXPORTS_MAX and NIGHTLY_WINDOW bound how many it asks for.' +
      others,
    action: { does: 'nightly' },
  };
}

function unverified({ at, runId }: NonNullable<MirrorFacts['lastVerify']>): Attention {
  return {
    what: 'the last verification failed',
    why: `on ${minute(at)} something recorded did not agree with what is there`,
    todo: `\`ledger-mirror runs ${runId}\` names it; when it is mended, \`ledger-mirror verify\` says so.`,
  };
}

function doubts({ lists }: MirrorFacts): readonly Attention[] {
  return lists.flatMap(({ list, doubts: open }) =>
    open.map(({ code, message, since }): Attention => ({
      what: `${LABELS[list]} is in doubt since ${day(since)}: ${code}`,
      why: message,
      todo: 'The next sync reads the whole list again by itself; now: `ledger-mirror sync all --full`. The doubt stays open until that ends without one.',
      action: { does: 'sync', list },
    })),
  );
}

function day(time: string): string {
  return time.slice(0, 10);
}

function attentionOf(stream: StreamStatus): readonly Attention[] {
  const { verdict } = stream;
  if (verdict === null || verdict === 'complete') return [];
  const command = stream.name === 'ledger' ? 'nightly' : `sync ${stream.name}`;
  const todo =
    verdict === 'suspicious'
      ? 'Read the evidence of the last run: the source contradicted itself or what is already known.'
      : `Run \`ledger-mirror ${command}\`, or wait for the next nightly run; the last run's evidence says what was missing.`;
  const run = stream.name === 'ledger' ? 'nightly run' : `sync of ${stream.name}`;
  return [
    {
      what: `the last ${run} ${verdict === 'failed' ? 'failed' : `was ${verdict}`}`,
      why: `${LABELS[stream.name]} ${stream.name === 'ledger' ? 'are' : 'is'} not proven complete`,
      todo,
      action: actionOf(stream),
    },
  ];
}

/** Asking again does not help where the source contradicts itself: that is for a person to read. */
function actionOf({ name, verdict }: StreamStatus): Action {
  if (verdict === 'suspicious') {
    return name === 'ledger'
      ? { does: 'evidence', kind: 'nightly' }
      : { does: 'evidence', kind: 'sync', subject: name };
  }
  return name === 'ledger' ? { does: 'nightly' } : { does: 'sync', list: name };
}

function quarantined(count: string): Attention {
  return {
    what: `${plural(count, 'ledger')} quarantined`,
    why: 'the export failed again and again',
    todo: 'See the export runs for the reason; every nightly run asks again.',
    action: { does: 'ask again' },
  };
}

function missed(scheduledAt: string, workers: number): Attention {
  return {
    what: `the nightly run of ${minute(scheduledAt)} was missed`,
    why: workers === 0 ? 'no worker is running' : 'it never began',
    todo:
      workers === 0
        ? 'Start one (`ledger-mirror up` or `worker`): it makes up for it by itself.'
        : 'A worker starts it within a minute; where it does not, look at its log.',
  };
}

function gaps({ lists }: MirrorFacts): readonly Attention[] {
  return lists.flatMap(({ list, gaps: known }) =>
    known.map(({ belowKey, aboveKey, foundAt, isConfirmed }): Attention => ({
      what: `${LABELS[list]} lacks rows between ${short(belowKey)} and ${short(aboveKey)}`,
      why: `on ${day(foundAt)} the source no longer served them`,
      todo: isConfirmed
        ? 'An audit confirmed it: this source does not have them. Each sync looks whether it serves older rows again.'
        : 'Each sync looks whether the source serves them again, and reads the whole list then.',
    })),
  );
}

function short(key: string): string {
  return key.length > 20 ? `${key.slice(0, 12)}…` : key;
}
