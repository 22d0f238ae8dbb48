/**
 * One walk of one list, from the lease to the verdict. First walk, increment, resume and audit are the
 * same: read the head, then grow the chains on both sides of each gap until they overlap by proof.
 */
import { PermanentError } from '../core/errors.ts';
import { NETWORK_PARTY } from '../core/ids.ts';
import type { Outcome } from '../core/verdict.ts';
import { hintKey, PAGE_SIZE_MIN, type WalkContext, type WalkDeps } from './context.ts';
import { evidenceOf } from './evidence.ts';
import { growToHead } from './growth.ts';
import { HintWriter } from './hint-writer.ts';
import { LeaseKeeper, openSession } from './lease.ts';
import type { AuditTotals, ListName, WalkKind, WalkSession } from './ports.ts';
import { ProgressMeter, type WalkProgress } from './progress.ts';
import { noteOnce } from './reader.ts';
import { Tally } from './tally.ts';
import { verdictOf, type Missing } from './verdict.ts';

export interface WalkRequest {
  readonly list: ListName;
  /** Of a row in `mirror.runs` that is not finished; its verdict is recorded here. */
  readonly runId: string;
  readonly kind: WalkKind;
  readonly pageSize: number;
  /** Whether a network that shares nothing with what is mirrored may begin a new epoch. */
  readonly acceptNewNetwork?: boolean | undefined;
}

/** An audit that misses more than this part of the list has met a sick source, not departed rows. */
const GONE_SHARE_MAX = 10n;

/**
 * Walks the list and records the verdict of the run.
 * @throws FencedError where another worker took over; nothing of ours was lost, stop quietly
 * @throws RetryableError `WALK_BUSY` while another worker is at it, or where the source asks to wait long
 * @throws UnreachableError where the source or the database is away; what was committed stays
 */
export async function walkList(
  request: WalkRequest,
  deps: WalkDeps & { readonly onProgress: (progress: WalkProgress) => void },
  signal: AbortSignal,
): Promise<Outcome> {
  const hint = await deps.hints.get(hintKey(request.list)).catch(() => undefined);
  const { list, runId, kind } = request;
  const session = await openSession(deps.books, { list, runId, kind, baseUrl: deps.source.baseUrl }, signal);
  await using hints = new HintWriter(deps.hints, hintKey(list));
  await using keeper = new LeaseKeeper(session, deps.log);
  const context: WalkContext = {
    deps,
    session,
    signal: AbortSignal.any([signal, keeper.signal]),
    tally: new Tally(),
    meter: new ProgressMeter(list, deps.onProgress),
    hints,
    pageSize: Math.max(request.pageSize, PAGE_SIZE_MIN),
  };
  try {
    const missing = await growToHead(context, request.acceptNewNetwork === true);
    return await conclude(context, request, missing, hint);
  } catch (error) {
    if (keeper.signal.aborted) throw keeper.signal.reason;
    // Else a successor waits for the lease to end by itself.
    await session.release().catch((cause: unknown) => deps.log.debug({ err: cause }, 'Lease not released'));
    throw error;
  }
}

async function conclude(
  context: WalkContext,
  request: WalkRequest,
  missing: readonly Missing[],
  hint: unknown,
): Promise<Outcome> {
  const { session, deps } = context;
  await findNetworkParty(context);
  const audit = session.kind === 'audit' && missing.length === 0 ? await session.auditTotals() : undefined;
  if (audit !== undefined) await refuseShrunken(context, audit);
  const chains = await session.chains();
  const ending = {
    main: chains.at(-1),
    audit,
    hint: session.resumed ? compareHint(hint, session) : undefined,
    pageSizeAsked: request.pageSize,
  };
  const evidence = async (lacking: readonly Missing[]): Promise<Readonly<Record<string, unknown>>> => ({
    ...evidenceOf(context, { ...ending, missing: lacking, totals: await session.totals() }),
  });
  await deps.checkpoint?.('claiming');
  if (missing.length === 0) {
    const proof = await evidence(missing);
    if (await session.claim(proof)) {
      await deps.checkpoint?.('claimed');
      return { verdict: 'complete', evidence: proof };
    }
  }
  const { violations } = await session.totals();
  const lacking = missing.length > 0 || violations.length > 0 ? missing : [{ code: 'NOT_PROVEN' }];
  const shown = await evidence(lacking);
  const verdict = verdictOf(violations, lacking);
  await session.settle(verdict, shown);
  return { verdict, evidence: shown };
}

/** `network` has no place in the order and may be missing from either; it is asked for by name then. */
async function findNetworkParty(context: WalkContext): Promise<void> {
  const { session, deps, tally } = context;
  if (session.list !== 'parties' || tally.network !== undefined) return;
  tally.requests += 1;
  try {
    const row = await deps.source.party(NETWORK_PARTY, context.signal);
    if (row !== undefined) await session.keepUnproven([row]);
    tally.network = row === undefined ? 'absent' : 'stored';
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    tally.warn(`the party "network" could not be looked up (${error.code})`);
  }
}

/** A source that lost much of its list must not make the mirror mark it as gone. */
async function refuseShrunken(context: WalkContext, audit: AuditTotals): Promise<void> {
  if (context.session.list !== 'parties') return;
  if (audit.gone * GONE_SHARE_MAX <= audit.served + audit.gone) return;
  await noteOnce(context, {
    code: 'LIST_SHRANK',
    meta: { served: `${audit.served}`, gone: `${audit.gone}` },
  });
}

function compareHint(hint: unknown, session: WalkSession): 'agrees' | 'differs' | 'none' {
  if (typeof hint !== 'object' || hint === null || !('walkId' in hint)) return 'none';
  return hint.walkId === `${session.walkId}` ? 'agrees' : 'differs';
}
