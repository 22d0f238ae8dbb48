/** What a sync has to show for its verdict, as JSON. */
import { storable } from '../core/json-value.ts';
import { formatInstant } from '../core/time.ts';
import type { SyncContext } from './context.ts';
import type { AuditReport } from './store/claim.ts';
import type { ListSituation } from './store/list-store.ts';

export type Evidence = Readonly<Record<string, unknown>>;

export interface Standing extends Pick<ListSituation, 'epoch' | 'gaps' | 'doubts'> {
  readonly rows: bigint;
  readonly auditedAt: string | null | undefined;
  readonly audit?: AuditReport | undefined;
  /** What stands between the list and `complete`. */
  readonly missing: readonly { readonly code: string; readonly [detail: string]: unknown }[];
}

export function describeSync({ list, tally, pageSize }: SyncContext, standing: Standing): Evidence {
  const { epoch, rows, auditedAt, audit, missing, gaps, doubts } = standing;
  return storable({
    list,
    ...tally.mode,
    epoch,
    asOfHeight: tally.height,
    asOfTime: tally.time === undefined ? undefined : formatInstant(tally.time),
    rows,
    newRows: audit === undefined ? BigInt(tally.newRows) : audit.served - audit.common,
    requests: tally.requests,
    pages: tally.pages,
    pageSize,
    resumedFrom: tally.resumedFrom,
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
