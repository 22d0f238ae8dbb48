/**
 * Grows this walk's chains until one holds both ends of the list, or says what is missing. The head is
 * read first, so that the claim is as of the start; what comes later belongs to the next walk.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { WalkContext } from './context.ts';
import { askFirst, isViolation, storeFirst, type FirstPage, type Refused } from './ends.ts';
import { closeGap, type OpenGap } from './gap.ts';
import { VERDICT_OF } from './guards.ts';
import { identify, type Identity } from './identity.ts';
import { lieOf } from './lie.ts';
import type { Chain, Violation } from './ports.ts';
import { noteOnce } from './reader.ts';
import { confirmSeam } from './seam.ts';
import type { Missing } from './verdict.ts';

/** How often the head is asked again where the list grew over it meanwhile. */
const HEAD_TRIES_MAX = 3;
const MOMENT_BLOCKS = 20n;
const MOMENT_MS = 1_000;
/** Pages from the frontier before the head is stored: one to know the network, one where the proof lacks a group. */
const LOOKS_MAX = 2;
/** Every turn closes a gap or ends the walk; an interrupted walk leaves one more behind. */
const TURNS_MAX = 1_000;
/** The side below the gap no longer finds its edge at the source. */
const FRONTIER_LOST: ReadonlySet<string> = new Set([
  'BORDER_NOT_SHOWN',
  'BORDER_DIFFERS',
  'BORDER_UNVERIFIABLE',
  'CURSOR_REFUSED',
  'CURSOR_CYCLE',
  'ROWS_PASSED_OVER',
  'NO_ANCHOR',
]);

/** @returns what is missing; nothing means that the claim can be tried */
export async function growToHead(
  context: WalkContext,
  acceptNewNetwork: boolean,
): Promise<readonly Missing[]> {
  const first = await askHead(context);
  if (first.kind === 'refused') return growWithoutHead(context, first.trouble);
  const refused = await checkHeights(context, first, acceptNewNetwork);
  if (refused !== undefined) return refused;
  const missing = await placeHead(context, first, acceptNewNetwork);
  return missing ?? closeGaps(context);
}

/** Nodes behind a balancer differ by a few blocks: one that is behind gets a moment, or another answers. */
async function askHead(context: WalkContext): Promise<FirstPage | Refused> {
  const before = context.session.heightBefore;
  for (let tries = 1; ; tries += 1) {
    const head = await askFirst(context, 'head');
    const height = head.kind === 'page' ? head.page.blockHeight : undefined;
    const lag = before === undefined || height === undefined ? 0n : before - height;
    if (lag <= 0n || lag > MOMENT_BLOCKS || tries >= HEAD_TRIES_MAX) return head;
    await sleep(MOMENT_MS, undefined, { signal: context.signal });
  }
}

async function checkHeights(
  context: WalkContext,
  head: FirstPage,
  acceptNewNetwork: boolean,
): Promise<readonly Missing[] | undefined> {
  const before = context.session.heightBefore;
  const now = head.page.blockHeight;
  const wentDown = before !== undefined && now !== undefined && now < before;
  // An audit stores on chains of its own, so no border would tell that this is another network.
  if (!wentDown && context.session.kind === 'walk') return undefined;
  return actOn(context, await identify(context, now), acceptNewNetwork, now);
}

/** @returns undefined where the walk may go on, in a new epoch where the network began again */
async function actOn(
  context: WalkContext,
  identity: Identity,
  acceptNewNetwork: boolean,
  height: bigint | undefined,
): Promise<readonly Missing[] | undefined> {
  const { session, tally, deps } = context;
  const { kind } = identity;
  const heights = { height: height?.toString(), heightBefore: session.heightBefore?.toString() };
  tally.identity = { kind, ...heights, ...identity.evidence };
  if (kind === 'same') return undefined;
  const isAccepted = kind === 'reset' || (acceptNewNetwork && kind !== 'lagging');
  if (isAccepted) {
    deps.log.warn({ list: session.list, ...tally.identity }, 'Network began again: a new epoch begins');
    await session.beginEpoch(tally.identity);
    return undefined;
  }
  const code = kind === 'another' ? 'OTHER_NETWORK' : 'HEIGHT_WENT_DOWN';
  await noteOnce(context, { code, meta: tally.identity });
  return [{ code }];
}

async function placeHead(
  context: WalkContext,
  first: FirstPage,
  acceptNewNetwork: boolean,
): Promise<readonly Missing[] | undefined> {
  const { session, tally } = context;
  let head = first;
  for (let tries = 1; ; tries += 1) {
    const chains = await session.chains();
    if (head.cut.whole.length === 0) return placeNothing(context, head, chains);
    for (let looks = 0; looks < LOOKS_MAX; looks += 1) {
      const look = await lookFromFrontier(context, head, looks === 0, acceptNewNetwork);
      if (look === 'enough') break;
      if (look !== 'went on') return look;
    }
    const stored = await storeFirst(context, head, await session.chains());
    if (!isViolation(stored)) return undefined;
    const isLast = tries >= HEAD_TRIES_MAX;
    tally.step({
      role: 'head',
      code: stored.code,
      step: isLast ? 'leave it to the other side' : 'ask again',
      meta: stored.meta,
    });
    if (isLast) {
      await noteOnce(context, stored);
      return [{ code: stored.code, reasons: [stored.meta] }];
    }
    const again = await askFirst(context, 'head');
    if (again.kind === 'refused') return refusedEnd(context, 'HEAD', again.trouble);
    head = again;
  }
}

/**
 * A head that touches nothing may be far ahead, or of another network. One page from the frontier tells:
 * it must show what is held. Nothing of the head is stored before. Where the head shows one group only of
 * what is held, that page is what the proof lacks.
 */
async function lookFromFrontier(
  context: WalkContext,
  head: FirstPage,
  isFirstLook: boolean,
  acceptNewNetwork: boolean,
): Promise<'enough' | 'went on' | readonly Missing[]> {
  const top = (await context.session.chains()).at(-1);
  if (top === undefined) return 'enough';
  const lie = await lieOf(context.session, {
    fresh: head.cut.whole,
    partial: head.cut.partial,
    direction: 'down',
    own: undefined,
    neighbour: top,
  });
  if (lie.kind !== 'short' && (lie.kind !== 'extends' || !isFirstLook)) return 'enough';
  const look = await closeGap(
    context,
    { lower: top, upper: undefined },
    { directions: ['up'], commitsMax: 1 },
  );
  if (look.joined || look.commits > 0) return 'went on';
  if (lie.kind === 'short') return 'enough';
  const { blockHeight } = head.page;
  const refused = await actOn(context, await identify(context, blockHeight), acceptNewNetwork, blockHeight);
  return refused ?? 'enough';
}

async function placeNothing(
  context: WalkContext,
  head: FirstPage,
  chains: readonly Chain[],
): Promise<readonly Missing[]> {
  const code = chains.length > 0 ? 'LIST_SHRANK' : 'LIST_EMPTY';
  if (head.cut.network !== undefined) {
    await context.session.keepUnproven([head.cut.network]);
    context.tally.network = 'stored';
  }
  const tail = await askFirst(context, 'tail');
  const rowsServed = tail.kind === 'page' ? tail.page.rows.length : undefined;
  await noteOnce(context, { code, meta: { rowsServed } });
  return [{ code }];
}

async function closeGaps(context: WalkContext): Promise<readonly Missing[]> {
  const { session, tally } = context;
  const missing: Missing[] = [];
  for (let turn = 0; turn < TURNS_MAX; turn += 1) {
    const chains = await session.chains();
    const upper = chains.at(-1);
    if (upper === undefined || upper.hasTail) return missing;
    const lower = chains.at(-2);
    if (lower === undefined) {
      const trouble = await placeTail(context, chains);
      if (trouble === undefined) continue;
      await closeGap(context, { lower: undefined, upper });
      tally.oneWay = { answered: 'newest first', reason: trouble.code };
      return [...missing, ...(await refusedEnd(context, 'TAIL', trouble))];
    }
    const gap = await closeGap(context, { lower, upper });
    if (gap.joined) {
      await confirmSeam(context, gap);
      continue;
    }
    missing.push(describeGap(gap));
    if (!(await abandonBelow(context, gap))) return missing;
  }
  return [...missing, { code: 'TOO_MANY_GAPS' }];
}

/** The first page oldest first, stored; or why it cannot be. */
async function placeTail(
  context: WalkContext,
  chains: readonly Chain[],
  above?: Chain,
): Promise<Violation | undefined> {
  const tail = await askFirst(context, 'tail');
  if (tail.kind === 'refused') return tail.trouble;
  if (tail.cut.whole.length === 0) return { code: 'END_WITHOUT_MEETING', meta: { role: 'tail' } };
  const stored = await storeFirst(context, tail, chains, above);
  return isViolation(stored) ? stored : undefined;
}

/**
 * Both sides failed and the source no longer finds the frontier: what lay between is lost, or never will
 * be shown. The gap is kept in the books; the list goes on above it from the source's own tail.
 * @returns whether it does
 */
async function abandonBelow(context: WalkContext, gap: OpenGap): Promise<boolean> {
  const { session } = context;
  const { lower, upper } = gap;
  const up = gap.reasons.find(({ direction }) => direction === 'up');
  if (upper === undefined || lower === undefined || !FRONTIER_LOST.has(up?.trouble.code ?? '')) return false;
  const trouble = await placeTail(context, [upper], lower);
  if (trouble !== undefined) {
    if (VERDICT_OF[trouble.code] !== undefined) await noteOnce(context, trouble);
    return false;
  }
  await session.recordGap({
    belowKey: lower.top.at(-1)?.held.at(-1)?.keys[0],
    aboveKey: upper.bottom.at(-1)?.held.at(-1)?.keys[0],
    reason: `the source no longer shows the rows behind ${lower.hi}; it now begins above them`,
  });
  return true;
}

async function growWithoutHead(context: WalkContext, trouble: Violation): Promise<readonly Missing[]> {
  const missing = await refusedEnd(context, 'HEAD', trouble);
  const { session, tally } = context;
  let chains = await session.chains();
  if (chains.length === 0) {
    if ((await placeTail(context, chains)) !== undefined) return missing;
    chains = await session.chains();
  }
  const gap = await closeGap(context, { lower: chains.at(-1), upper: undefined });
  if (
    !gap.joined &&
    gap.commits === 0 &&
    !gap.reasons.some((reason) => reason.trouble.code === 'END_WITHOUT_MEETING')
  ) {
    return missing;
  }
  tally.oneWay = { answered: 'oldest first', reason: trouble.code };
  return [{ code: 'HEAD_UNPROVEN', reasons: [trouble] }];
}

async function refusedEnd(
  context: WalkContext,
  code: 'HEAD' | 'TAIL',
  trouble: Violation,
): Promise<readonly Missing[]> {
  if (VERDICT_OF[trouble.code] !== undefined) await noteOnce(context, trouble);
  return [{ code, reasons: [trouble] }];
}

function describeGap({ lower, upper, reasons }: OpenGap): Missing {
  return {
    code: 'GAP',
    belowKey: lower?.top.at(-1)?.held.at(-1)?.keys[0],
    aboveKey: upper?.bottom.at(-1)?.held.at(-1)?.keys[0],
    reasons,
  };
}
