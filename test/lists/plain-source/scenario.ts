/**
 * Random sequences of growth, faults, healing and syncs, each with what may be demanded
 * of each sync.
 */
import type { Fault, When } from './fault.ts';
import { FAULTS_IN_LISTS } from './faults-in-lists.ts';
import { FAULTS_IN_PAGES } from './faults-in-pages.ts';
import { HONEST_DIALECTS } from './honest-dialects.ts';
import type { HonestDialect } from './honest-source.ts';
import { Random } from './random.ts';
import { LISTS } from './rows.ts';

export type Step =
  | {
      readonly kind: 'append';
      readonly parties: number;
      readonly checkpoints: number;
    }
  | { readonly kind: 'misbehave'; readonly fault: Fault; readonly when: When }
  | { readonly kind: 'heal' }
  | {
      readonly kind: 'sync';
      readonly isAudit: boolean;
      /** What `complete` of this sync has to prove. */
      readonly proves: Proof;
      /** Only `complete` is right, with exactly the rows. */
      readonly mustBeComplete: boolean;
    };

type Proof = 'nothing' | 'rows' | 'rows-and-order';

export interface Scenario {
  readonly seed: number;
  readonly dialect: HonestDialect;
  readonly steps: readonly Step[];
}

const FIRM = HONEST_DIALECTS.filter((dialect) => dialect.isFirm);
const DRAWN = [...FAULTS_IN_PAGES, ...FAULTS_IN_LISTS].filter(
  (fault) => fault.heals && fault.name !== 'is-endless',
);
/**
 * A list of one page shows little: only faults that spare one order betray themselves in
 * it.
 */
const DRAWN_FOR_ONE_PAGE = DRAWN.filter(
  (fault) => fault.when.order !== undefined && fault.shownBy === 'sync',
);

/**
 * The same seed draws the same scenario. Each begins with a healthy sync or a faulty one,
 * and ends healed.
 */
export function drawScenario(seed: number): Scenario {
  const random = new Random(seed);
  const dialect = random.pick(FIRM);
  const { parties, checkpoints } = dialect.make();
  const isLong =
    Math.min(parties.length, checkpoints.length) > dialect.pageSize;
  const plan = new Plan(random, isLong ? DRAWN : DRAWN_FOR_ONE_PAGE);
  if (random.chance(0.7)) plan.sync(false);
  const count = random.between(4, 10);
  for (let at = 0; at < count; at += 1) plan.draw();
  return { seed, dialect, steps: plan.finish() };
}

class Plan {
  private readonly steps: Step[] = [];
  private readonly random: Random;
  private readonly faults: readonly Fault[];
  private active: Fault | undefined;
  private proof: Proof = 'rows-and-order';
  private isHeld = false;

  constructor(random: Random, faults: readonly Fault[]) {
    this.random = random;
    this.faults = faults;
  }

  draw(): void {
    const { random } = this;
    if (random.chance(0.25))
      this.append(random.between(0, 30), random.between(0, 30));
    else if (this.active !== undefined && random.chance(0.35)) this.heal();
    else if (this.active === undefined && random.chance(0.55)) this.misbehave();
    else this.sync(random.chance(0.2));
  }

  finish(): readonly Step[] {
    if (this.active !== undefined) this.heal();
    this.sync(true, true);
    this.append(3, 3);
    this.sync(false, true);
    return this.steps;
  }

  sync(isAudit: boolean, mustBeComplete = false): void {
    if (isAudit && this.active === undefined) this.proof = 'rows-and-order';
    this.steps.push({
      kind: 'sync',
      isAudit,
      proves: this.proof,
      mustBeComplete,
    });
    this.isHeld ||=
      this.active === undefined &&
      this.proof === 'rows-and-order' &&
      isCalm(this.steps);
  }

  private append(parties: number, checkpoints: number): void {
    this.steps.push({ kind: 'append', parties, checkpoints });
  }

  private heal(): void {
    this.active = undefined;
    this.steps.push({ kind: 'heal' });
  }

  private misbehave(): void {
    const { random } = this;
    const fault = random.pick(
      this.isHeld
        ? this.faults
        : this.faults.filter(({ since }) => since === 'first-sync'),
    );
    const list = random.chance(0.5) ? random.pick(LISTS) : undefined;
    const isOnce = fault.when.times === 1 && fault.when.from !== undefined;
    const when: When = {
      ...fault.when,
      ...(fault.when.list === undefined && list !== undefined ? { list } : {}),
      ...(isOnce ? { from: random.between(0, 4) } : {}),
    };
    this.active = fault;
    if (fault.shownBy === 'audit') this.proof = 'nothing';
    else if (!fault.keepsOrder && this.proof === 'rows-and-order')
      this.proof = 'rows';
    this.steps.push({ kind: 'misbehave', fault, when });
    if (fault.name === 'prunes-everything-held')
      this.append(random.between(8, 40), random.between(8, 40));
  }
}

/**
 * Nothing but growth and syncs so far: the last sync is `complete`, and everything is
 * held.
 */
function isCalm(steps: readonly Step[]): boolean {
  return steps.every((step) => step.kind !== 'misbehave');
}
