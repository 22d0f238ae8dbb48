/** What a sync has to show for its verdict, as JSON. */
import { storable } from '../core/json-value.ts';
import { formatInstant } from '../core/time.ts';
import type { ResumedFrom } from './resume-point.ts';
import type { SyncContext } from './context.ts';
import type { AuditReport } from './store/claim.ts';
import type { KnownGap, OpenDoubt } from './store/list-state.ts';

export type Evidence = Readonly<Record<string, unknown>>;

export interface SyncMode {
  readonly kind: 'first reading' | 'increment' | 'audit';
  /** Why everything is read again. */
  readonly because?: string;
}

/** What stands between a list and `complete`. */
export interface Missing {
  readonly code: string;
  readonly [detail: string]: unknown;
}

export interface Standing {
  readonly mode: SyncMode;
  readonly epoch: number;
  readonly rows: bigint;
  readonly auditedAt: string | null | undefined;
  readonly resumedFrom: ResumedFrom | undefined;
  readonly audit?: AuditReport | undefined;
  readonly missing: readonly Missing[];
  readonly gaps: readonly KnownGap[];
  readonly doubts: readonly OpenDoubt[];
}

export function describeSync({ list, tally, pageSize }: SyncContext, standing: Standing): Evidence {
  const { mode, epoch, rows, auditedAt, resumedFrom, audit, missing, gaps, doubts } = standing;
  return storable({
    list,
    ...mode,
    epoch,
    asOfHeight: tally.height,
    asOfTime: tally.time === undefined ? undefined : formatInstant(tally.time),
    rows,
    newRows: audit === undefined ? BigInt(tally.newRows) : audit.served - audit.common,
    requests: tally.requests,
    pages: tally.pages,
    pageSize,
    resumedFrom,
    doubts: doubts.map(({ code, since, seen }) => ({ code, since, message: seen['message'] })),
    knownGaps: gaps.map(({ belowKey, aboveKey, foundAt, isConfirmed }) => ({
      belowKey,
      aboveKey,
      foundAt,
      isConfirmed,
    })),
    missing,
    warnings: tally.warnings,
    network: tally.network,
    audit: audit && describeAudit(audit),
    lastAuditAt: auditedAt ?? undefined,
  });
}

function describeAudit(audit: AuditReport): object {
  const { served, common: held, missed, gone, pruned, unconfirmed, finding, removed } = audit;
  return {
    served,
    held,
    missed,
    gone,
    ...(pruned === 0n ? {} : { pruned }),
    ...(unconfirmed === 0n ? {} : { removed: unconfirmed, firstRemoved: removed }),
    ...(finding === 'same' ? {} : { finding }),
  };
}
