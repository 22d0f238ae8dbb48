/**
 * Sums up the mirror's state in one sentence, and lists what needs an operator's
 * attention. Pure: the console and the `status` command show the result.
 */
import {
  formatCount,
  formatPlural,
  formatTime,
  formatTimeUtc,
} from '../format/format.js';
import { findReasons, type Reason } from './reasons.ts';
import type { Completeness } from './store/completeness.ts';
import type {
  ListFacts,
  MirrorFacts,
  OpenDoubt,
  StreamStatus,
  WorkFacts,
} from './mirror-facts.ts';

/** A problem that an operator should act on, and what to do about it. */
export interface Attention {
  readonly what: string;
  readonly why: string;
  readonly todo: string;
  /**
   * The action of the console's button for this problem; absent if there is no button.
   */
  readonly action?: Action;
}

export type Action =
  | { readonly does: 'nightly' }
  | { readonly does: 'sync'; readonly list: 'parties' | 'checkpoints' }
  | {
      readonly does: 'evidence';
      readonly kind: 'sync' | 'nightly';
      readonly subject?: string;
    }
  | { readonly does: 'ask again' };

/** The facts of the mirror, with the conclusions drawn from them. */
export interface MirrorStatus extends MirrorFacts {
  /** Whether both lists, and the ledger of every listed party, are proven complete. */
  readonly whole: boolean;
  /**
   * Whether both lists, and the ledgers of the configured parties, are proven complete;
   * this claims nothing about other parties.
   */
  readonly complete: boolean;
  /** Why the mirror is not complete; empty if it is. */
  readonly reasons: readonly Reason[];
  /** Whether the listed parties include `network`, which has no ledger. */
  readonly hasNetwork: boolean;
  readonly sentence: string;
  readonly attention: Attention[];
}

/**
 * For each stream, its name in a sentence, the run that brings it up to date, and the
 * command that starts that run.
 */
const STREAMS = {
  parties: {
    label: 'the list of parties',
    run: 'sync of parties',
    command: 'sync parties',
  },
  checkpoints: {
    label: 'the list of checkpoints',
    run: 'sync of checkpoints',
    command: 'sync checkpoints',
  },
  ledger: { label: 'the ledgers', run: 'nightly run', command: 'nightly' },
} as const;

export function summarizeStatus(facts: MirrorFacts): MirrorStatus {
  const { coverage, streams, work } = facts;
  const { listed, configured } = coverage;
  const isBegun = streams.some(({ verdict }) => verdict !== null);
  const reasons = findReasons(
    coverage,
    streams.map(({ verdict }) => verdict),
  );
  const complete = reasons.length === 0;
  const parties = configured === 1 ? 'party' : 'parties';
  const scope =
    configured === null
      ? ''
      : ` for ${formatCount(configured)} configured ${parties}`;
  const times = streams.flatMap(({ asOfTime }) => asOfTime ?? []).toSorted();
  // The instant up to which all three streams are proven; omitted if a stream has none.
  const asOf =
    times[0] === undefined || times.length < streams.length
      ? ''
      : ` as of ${formatTimeUtc(times[0], 'minute')}`;
  const incomplete = isBegun
    ? `The mirror is not complete: ${describeShortfall(coverage, streams)}.`
    : 'Nothing has been mirrored yet: no run has ended.';
  return {
    ...facts,
    whole: complete && configured === null,
    complete,
    reasons,
    hasNetwork: streams.some(
      ({ name, rows }) =>
        name === 'parties' && BigInt(rows) === BigInt(listed) + 1n,
    ),
    sentence: complete ? `The mirror is complete${scope}${asOf}.` : incomplete,
    // A nightly run that is late makes the mirror older, but not less complete.
    attention: [
      ...listAttention(facts, isBegun),
      ...listAwaited(facts),
      ...listScheduleAttention(work),
    ],
  };
}

function listAwaited({ awaitedSource }: MirrorFacts): readonly Attention[] {
  if (awaitedSource === null) return [];
  const { since, reason } = awaitedSource;
  return [
    {
      what: `the nightly run waits for the source since ${formatTimeUtc(new Date(since).toISOString(), 'minute')}`,
      why: reason,
      todo:
        'Nothing, if the source comes back: the run continues where ' +
        'it was. It waits until its window ends; `ledger-mirror cancel` ends it now.',
    },
  ];
}

function listScheduleAttention(work: WorkFacts): readonly Attention[] {
  const { missedSlot, workers, otherSchedules, schedule } = work;
  const found: Attention[] = [];
  if (missedSlot !== null) found.push(missed(missedSlot, workers));
  if (otherSchedules.length > 0)
    found.push({
      what: 'workers have different schedules',
      why:
        `in force is ${schedule}, of the worker that started last; others have ` +
        otherSchedules.join('; '),
      todo:
        'Give all workers the same SCHEDULE, SCHEDULE_TZ and AUDIT_SCHEDULE, and ' +
        'start them again.',
    });

  return found;
}

function describeShortfall(
  coverage: Completeness,
  streams: readonly StreamStatus[],
): string {
  const { covered, wanted } = coverage;
  const unprovenStreams = streams
    .filter(({ verdict }) => verdict !== 'complete')
    .map(({ name }) => STREAMS[name]);
  const labels = new Intl.ListFormat('en').format(
    unprovenStreams.map(({ label }) => label),
  );
  const are =
    unprovenStreams.length === 1 && unprovenStreams[0] !== STREAMS.ledger
      ? 'is'
      : 'are';
  const ledgers = `${formatCount(covered)} of ${formatCount(wanted)} ledgers`;
  const is = covered === 1 ? 'is' : 'are';
  const found = [
    ...(covered < wanted ? [`${ledgers} ${is} covered`] : []),
    ...(coverage.unlisted > 0 ? [countUnlisted(coverage)] : []),
    ...(unprovenStreams.length > 0 ? [`${labels} ${are} not proven`] : []),
  ];
  return found.join('; ') || 'what is in doubt or missing is named below';
}

function listAttention(facts: MirrorFacts, isBegun: boolean): Attention[] {
  const { coverage, streams, lists, lastVerify } = facts;
  const failed = lastVerify?.verdict === 'complete' ? null : lastVerify;
  const found = [
    ...streams.map((stream) => unproven(stream)),
    isBegun && coverage.unlisted > 0 ? unlisted(coverage) : null,
    isBegun && coverage.covered + coverage.unlisted < coverage.wanted
      ? uncovered(facts)
      : null,
    failed && {
      what: 'the last verification failed',
      why:
        `on ${formatTimeUtc(failed.at, 'minute')} something recorded did not ` +
        'agree with what is stored',
      todo:
        `\`ledger-mirror runs ${failed.runId}\` names it; when it is mended, ` +
        `\`ledger-mirror verify\` says so.`,
    },
    ...lists.flatMap((list) => doubts(list)),
    ...facts.ledgerDoubts.map((doubt) => ledgerDoubt(doubt)),
    coverage.quarantined === 0 ? null : quarantined(coverage.quarantined),
    coverage.notLoaded === 0 || coverage.isLoading
      ? null
      : notLoaded(coverage.notLoaded),
    ...lists.flatMap((list) => gaps(list)),
  ];
  return found.filter((one) => one !== null);
}

/**
 * Maximum number of configured parties named in a sentence, to keep it short; `coverage`
 * names more of them.
 */
const NAMED_MAX = 5;

function unlisted(coverage: Completeness): Attention {
  const named = coverage.unlistedParties.slice(0, NAMED_MAX);
  const more = coverage.unlisted - named.length;
  return {
    what: countUnlisted(coverage),
    why:
      `the source does not list ${named.join(', ')}` +
      (more > 0 ? ` and ${formatCount(more)} more` : ''),
    todo: 'Correct NIGHTLY_PARTIES, or remove from it what the source no longer lists.',
  };
}

function countUnlisted({ unlisted: parties }: Completeness): string {
  return parties === 1
    ? '1 configured party is not listed'
    : `${formatCount(parties)} configured parties are not listed`;
}

function uncovered({
  coverage: { covered, wanted, unlisted: missingParties, neverAsked },
  openNightlyRun,
}: MirrorFacts): Attention {
  const missing = wanted - covered - missingParties;
  const asked =
    `; ${formatCount(neverAsked)} of them ${neverAsked === 1 ? 'was' : 'were'} never ` +
    'asked for';
  const found = {
    what: `${formatPlural(missing, 'ledger')} not covered`,
    why:
      `${formatCount(covered)} of ${formatCount(wanted)} are covered from the beginning ` +
      `on${neverAsked === 0 ? '' : asked}`,
  };
  if (openNightlyRun !== null)
    return { ...found, todo: 'The nightly run under way asks for them.' };
  const others =
    ' Why a ledger that was asked for is not covered is in the evidence of the ' +
    'last nightly run.';
  return {
    ...found,
    todo:
      `Run \`ledger-mirror nightly\`, or wait for the next nightly run; ` +
      'NIGHTLY_EXPORTS_MAX and NIGHTLY_WINDOW bound how many it asks ' +
      `for.${neverAsked === missing ? '' : others}`,
    action: { does: 'nightly' },
  };
}

function doubts({ list, doubts: open }: ListFacts): readonly Attention[] {
  return open.map(({ code, message, since }) => ({
    what: `${STREAMS[list].label} is in doubt since ${formatTime(since, 'day')}: ${code}`,
    why: message,
    todo:
      'The next sync reads the whole list again by itself; now: `ledger-mirror sync ' +
      'all --full`. The doubt stays open until that ends without one.',
    action: { does: 'sync', list },
  }));
}

function ledgerDoubt({ code, message, since }: OpenDoubt): Attention {
  return {
    what: `ledgers are in doubt since ${formatTime(since, 'day')}: ${code}`,
    why: message,
    todo:
      'Each nightly run asks for them again and compares; `ledger-mirror compare` ' +
      'with the source and this mirror shows the months now. The doubt stays open ' +
      'until both agree.',
    action: { does: 'nightly' },
  };
}

function unproven({ name, verdict }: StreamStatus): Attention | null {
  if (verdict === null || verdict === 'complete') return null;
  const { label, run, command } = STREAMS[name];
  const found = {
    what: `the last ${run} ${verdict === 'failed' ? 'failed' : `was ${verdict}`}`,
    why: `${label} ${name === 'ledger' ? 'are' : 'is'} not proven complete`,
  };
  // If the source contradicts itself, requesting the data again does not help; an
  // operator must read the evidence.
  if (verdict === 'suspicious') {
    const todo =
      'Read the evidence of the last run: the source contradicted itself or what ' +
      'is already known.';
    const of =
      name === 'ledger'
        ? { kind: 'nightly' as const }
        : { kind: 'sync' as const, subject: name };
    return { ...found, todo, action: { does: 'evidence', ...of } };
  }
  const todo =
    `Run \`ledger-mirror ${command}\`, or wait for the next nightly run; the last ` +
    `run's evidence says what was missing.`;
  const action: Action =
    name === 'ledger' ? { does: 'nightly' } : { does: 'sync', list: name };
  return { ...found, todo, action };
}

function notLoaded(segments: number): Attention {
  return {
    what: `${formatPlural(segments, 'segment')} not loaded`,
    why: 'the warehouse and the lake do not have what was published',
    todo: 'Run `ledger-mirror load`, or wait for the next nightly run.',
  };
}

function quarantined(ledgers: number): Attention {
  return {
    what: `${formatPlural(ledgers, 'ledger')} quarantined`,
    why: 'the export failed again and again',
    todo: 'See the export runs for the reason; every nightly run asks again.',
    action: { does: 'ask again' },
  };
}

function missed(scheduledAt: string, workers: number): Attention {
  const [why, todo] =
    workers === 0
      ? [
          'no worker is running',
          'Start one (`ledger-mirror up` or `worker`): it makes up for the run by itself.',
        ]
      : [
          'it never began',
          'A worker starts it within a minute; if it does not, look at ' +
            'its log.',
        ];
  return {
    what: `the nightly run of ${formatTimeUtc(scheduledAt, 'minute')} was missed`,
    why,
    todo,
  };
}

function gaps({ list, gaps: known }: ListFacts): readonly Attention[] {
  return known.map(({ belowKey, aboveKey, foundAt, isConfirmed }) => ({
    what:
      `${STREAMS[list].label} lacks rows between ${short(belowKey)} and ` +
      short(aboveKey),
    why: `on ${formatTime(foundAt, 'day')} the source no longer served them`,
    todo: isConfirmed
      ? 'An audit confirmed it: this source does not have them. Each sync ' +
        'checks whether it serves older rows again.'
      : 'Each sync checks whether the source serves them again, and if so ' +
        'reads the whole list.',
  }));
}

function short(key: string): string {
  return key.length > 20 ? `${key.slice(0, 12)}…` : key;
}
