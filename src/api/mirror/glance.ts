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
  | { readonly does: 'night' }
  | { readonly does: 'walk'; readonly list: 'parties' | 'checkpoints' }
  | { readonly does: 'evidence'; readonly kind: 'walk' | 'nightly'; readonly subject?: string }
  | { readonly does: 'ask again' };

export interface MirrorStatus extends MirrorFacts {
  /** Every stream was proven complete by its last run, and nothing of it was lost. */
  readonly whole: boolean;
  readonly sentence: string;
  readonly attention: readonly Attention[];
}

const LABELS: Readonly<Record<StreamStatus['name'], string>> = {
  parties: 'the list of parties',
  checkpoints: 'the list of checkpoints',
  ledger: 'the ledgers',
};

export function glance(facts: MirrorFacts): MirrorStatus {
  const attention = [
    ...facts.streams.flatMap((stream) => attentionOf(stream)),
    ...(facts.ledger.quarantined === '0' ? [] : [quarantined(facts.ledger.quarantined)]),
    ...(facts.knownGaps === '0' ? [] : [gaps(facts.knownGaps)]),
  ];
  const late = facts.work?.missedSlot ?? null;
  const unproven = facts.streams.filter((stream) => stream.verdict !== 'complete');
  const whole = unproven.length === 0 && attention.length === 0;
  // A night that is late makes the mirror older, not less whole.
  const all = late === null ? attention : [...attention, missed(late, facts.work?.workers ?? 0)];
  return { ...facts, whole, sentence: sentence(facts, unproven, whole), attention: all };
}

function sentence(facts: MirrorFacts, unproven: readonly StreamStatus[], whole: boolean): string {
  const fresh = facts.streams
    .map((stream) => stream.asOfTime)
    .filter((time) => time !== null)
    .toSorted();
  const asOf = fresh[0] === undefined ? '' : ` as of ${fresh[0].slice(0, 16).replace('T', ' ')} UTC`;
  if (whole) return `The mirror is whole${asOf}.`;
  if (facts.streams.every((stream) => stream.verdict === null)) {
    return 'Nothing has been mirrored yet: no run has ended.';
  }
  const labels = unproven.map((stream) => LABELS[stream.name]);
  if (labels.length === 0) return `The lists and ledgers are complete${asOf}, but something was left out.`;
  return `The mirror is not proven whole: ${new Intl.ListFormat('en').format(labels)} ${
    labels.length === 1 && unproven[0]?.name !== 'ledger' ? 'is' : 'are'
  } not complete.`;
}

function attentionOf(stream: StreamStatus): readonly Attention[] {
  const { verdict } = stream;
  if (verdict === null || verdict === 'complete') return [];
  const command = stream.name === 'ledger' ? 'nightly' : `sync ${stream.name}`;
  const todo =
    verdict === 'suspicious'
      ? 'Read the evidence of the last run: the source contradicted itself or what is already known.'
      : `Run \`ledger-mirror ${command}\`, or wait for the next night; the last run's evidence says what was missing.`;
  const why = 'the last run could not prove it complete';
  return [{ what: `${LABELS[stream.name]}: ${verdict}`, why, todo, action: actionOf(stream) }];
}

/** Asking again does not help where the source contradicts itself: that is for a person to read. */
function actionOf({ name, verdict }: StreamStatus): Action {
  if (verdict === 'suspicious') {
    return name === 'ledger'
      ? { does: 'evidence', kind: 'nightly' }
      : { does: 'evidence', kind: 'walk', subject: name };
  }
  return name === 'ledger' ? { does: 'night' } : { does: 'walk', list: name };
}

function quarantined(count: string): Attention {
  return {
    what: `${count} ${count === '1' ? 'ledger' : 'ledgers'} quarantined`,
    why: 'the export failed again and again',
    todo: 'See the export runs for the reason; every nightly run asks again.',
    action: { does: 'ask again' },
  };
}

function missed(slot: string, workers: number): Attention {
  return {
    what: `the night of ${slot.slice(0, 16).replace('T', ' ')} UTC was missed`,
    why: workers === 0 ? 'no worker is running' : 'it never began',
    todo:
      workers === 0
        ? 'Start one (`ledger-mirror up` or `worker`): it makes the night up by itself.'
        : 'A worker makes it up within a minute; where it does not, look at its log.',
  };
}

function gaps(count: string): Attention {
  return {
    what: `${count} known ${count === '1' ? 'gap' : 'gaps'} in the lists`,
    why: 'the source stopped serving rows before they were read',
    todo: 'Nothing can bring them back from this source; the gaps stay recorded.',
  };
}
