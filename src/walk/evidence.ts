/** What a walk can show for its verdict: JSON, with whole numbers that may grow as text. */
import { formatInstant } from '../core/time.ts';
import type { WalkContext } from './context.ts';
import type { AuditTotals, Chain, ListName, WalkKind, WalkTotals } from './ports.ts';
import type { LadderStep, Seam } from './tally.ts';
import type { Missing } from './verdict.ts';

export interface WalkEvidence {
  readonly list: ListName;
  readonly kind: WalkKind;
  readonly epoch: number;
  /** The claim is as of this block: the source's last when it answered the head page. */
  readonly asOfHeight: string | undefined;
  readonly asOfTime: string | undefined;
  readonly rows: string;
  readonly newRows: string;
  readonly requests: number;
  readonly pages: WalkTotals['pages'];
  readonly pageSize: number;
  readonly pageSizeAsked?: number;
  readonly resumed: boolean;
  /** What the resume state said where an earlier worker had begun. Postgres decided. */
  readonly hint?: 'agrees' | 'differs' | 'none';
  readonly seams: readonly Seam[];
  readonly ladder: readonly LadderStep[];
  readonly shortReads: number;
  readonly violations: WalkTotals['violations'];
  readonly knownGaps: WalkTotals['knownGaps'];
  readonly missing: readonly Missing[];
  readonly warnings: readonly string[];
  readonly network?: 'stored' | 'absent';
  readonly oneWay?: { readonly answered: string; readonly reason: string };
  readonly identity?: Readonly<Record<string, unknown>>;
  readonly audit?: { readonly missed: string; readonly gone: string; readonly served: string };
  /** Rows that a source inserts under the frontier are found by an audit only. */
  readonly backfillLookedForAt: string | undefined;
  readonly auditDue: boolean;
}

export interface Ending {
  readonly main: Chain | undefined;
  readonly missing: readonly Missing[];
  readonly totals: WalkTotals;
  readonly audit: AuditTotals | undefined;
  readonly hint: 'agrees' | 'differs' | 'none' | undefined;
  readonly pageSizeAsked: number;
}

export function evidenceOf(context: WalkContext, ending: Ending): WalkEvidence {
  const { session, tally } = context;
  const { main, totals, audit } = ending;
  const head = main?.head;
  const isFirst = totals.auditedAt === undefined;
  const hasReadAll = ending.missing.length === 0 && (isFirst || session.kind === 'audit');
  if (tally.heightDip > 0n) {
    tally.warn(`answers lay up to ${tally.heightDip} blocks behind earlier ones`);
  }
  return {
    list: session.list,
    kind: session.kind,
    epoch: session.epoch,
    asOfHeight: head?.height?.toString(),
    asOfTime: head?.time === undefined ? undefined : formatInstant(head.time),
    rows: `${totals.rows}`,
    newRows: `${totals.newRows}`,
    requests: tally.requests,
    pages: totals.pages,
    pageSize: context.pageSize,
    ...(ending.pageSizeAsked === context.pageSize ? {} : { pageSizeAsked: ending.pageSizeAsked }),
    resumed: session.resumed,
    ...(ending.hint === undefined ? {} : { hint: ending.hint }),
    seams: tally.seams,
    ladder: tally.ladder,
    shortReads: tally.shortReads,
    violations: totals.violations,
    knownGaps: totals.knownGaps,
    missing: ending.missing,
    warnings: tally.warnings,
    ...(tally.network === undefined ? {} : { network: tally.network }),
    ...(tally.oneWay === undefined ? {} : { oneWay: tally.oneWay }),
    ...(tally.identity === undefined ? {} : { identity: tally.identity }),
    ...(audit === undefined
      ? {}
      : { audit: { missed: `${audit.missed}`, gone: `${audit.gone}`, served: `${audit.served}` } }),
    backfillLookedForAt: hasReadAll ? totals.startedAt : totals.auditedAt,
    auditDue: totals.violations.some(({ code }) => AUDIT_DUE.has(code)),
  };
}

/** What only reading every page again can settle. */
const AUDIT_DUE: ReadonlySet<string> = new Set([
  'ROWS_PASSED_OVER',
  'ROWS_INSERTED',
  'ORDER_BROKEN',
  'LIST_SHRANK',
]);
