/** What a sync has to show for its verdict, as JSON. */
import { formatInstant } from '../core/time.ts';
import type { SyncContext } from './context.ts';
import type { AuditReport } from './store/claim.ts';
import type { KnownGap, OpenDoubt } from './store/list-state.ts';

export interface SyncMode {
  readonly kind: 'first reading' | 'increment' | 'audit';
  /** Why everything is read again. */
  readonly because: string | undefined;
}

/** What stands between a list and `complete`. */
export interface Missing {
  readonly code: string;
  readonly [detail: string]: unknown;
}

export interface Standing {
  readonly epoch: number;
  readonly rows: bigint;
  readonly auditedAt: string | null | undefined;
  readonly resumedFrom: 'redis' | 'postgres' | undefined;
  readonly audit: AuditReport | undefined;
  readonly missing: readonly Missing[];
  readonly gaps: readonly KnownGap[];
  readonly doubts: readonly OpenDoubt[];
}

export function describeSync(
  { list, tally, pageSize }: SyncContext,
  mode: SyncMode,
  { epoch, rows, auditedAt, resumedFrom, audit, missing, gaps, doubts }: Standing,
): Readonly<Record<string, unknown>> {
  return {
    list,
    kind: mode.kind,
    ...(mode.because === undefined ? {} : { because: mode.because }),
    epoch,
    ...(tally.height === undefined ? {} : { asOfHeight: `${tally.height}` }),
    ...(tally.time === undefined ? {} : { asOfTime: formatInstant(tally.time) }),
    rows: `${rows}`,
    newRows: `${audit === undefined ? tally.newRows : audit.served - audit.common}`,
    requests: tally.requests,
    pages: tally.pages,
    pageSize,
    ...(resumedFrom === undefined ? {} : { resumedFrom }),
    doubts: doubts.map(({ code, since, seen }) => ({ code, since, message: seen['message'] })),
    knownGaps: gaps.map(({ belowKey, aboveKey, foundAt, isConfirmed }) => ({
      belowKey,
      aboveKey,
      foundAt,
      isConfirmed,
    })),
    missing,
    warnings: tally.warnings,
    ...(tally.network === undefined ? {} : { network: tally.network }),
    ...(audit === undefined ? {} : { audit: describeAudit(audit) }),
    ...(auditedAt ? { lastAuditAt: auditedAt } : {}),
  };
}

function describeAudit(audit: AuditReport): object {
  const { pruned, unconfirmed, finding } = audit;
  return {
    served: `${audit.served}`,
    held: `${audit.common}`,
    missed: `${audit.missed}`,
    gone: `${audit.gone}`,
    ...(pruned === 0n ? {} : { pruned: `${pruned}` }),
    ...(unconfirmed === 0n ? {} : { removed: `${unconfirmed}`, firstRemoved: audit.removed }),
    ...(finding === 'same' ? {} : { finding }),
  };
}
