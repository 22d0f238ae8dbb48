/**
 * Chooses which closed segments and empty ranges an export requests again, to compare
 * their sums.
 */
import { hash } from 'node:crypto';
import { BEGINNING, DAY_MICROS, type Micros } from '../../time/time.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import type { ExportRepository } from '../store/export-repository.ts';
import { later } from '../../ledger/ranges.ts';
import { isEmpty, RETENTION_MICROS, type Target } from './remaining.ts';

interface AuditChoice extends Pick<
  Target,
  'epoch' | 'now' | 'retentionMicros'
> {
  /**
   * The share to choose, from 0 to 1. Only closed segments that the source should still
   * have are counted.
   */
  readonly share: number;
  /**
   * Ranges that were last checked longer ago than this are chosen regardless of the
   * share.
   */
  readonly withinMicros?: Micros | undefined;
  readonly scope: ExportScope;
}

/**
 * Chooses segments and empty ranges, beginning with those checked longest ago. If the
 * share amounts to less than one segment a night, chance decides on which nights a
 * segment is chosen. A segment that chance has skipped for too long is chosen by age.
 */
export function chooseAudited(
  coverage: readonly Coverage[],
  choice: AuditChoice,
): readonly Coverage[] {
  const { share, scope, epoch, now, withinMicros } = choice;
  const newest = coverage.reduce(
    (latest, row) => (row.rows > 0n ? later(latest, row.from) : latest),
    0n,
  );
  const candidates = coverage
    .filter((row) => !row.open && row.assetId === scope.assetId)
    // Every overlap check already covers an empty range after the newest entry.
    .filter(
      (row) => row.content !== undefined || (isEmpty(row) && row.to <= newest),
    )
    .filter((row) => row.isFaulty !== true && isOfEpoch(row, epoch))
    .filter((row) => row.from === BEGINNING || isServed(row.from, choice))
    .filter((row) => now - (row.checkedAt ?? 0n) > DAY_MICROS)
    .toSorted((one, other) =>
      Number((one.checkedAt ?? 0n) - (other.checkedAt ?? 0n)),
    );
  const wanted = share * candidates.length + chance(scope, now);
  const overdue = candidates.filter(
    ({ checkedAt = 0n }) =>
      withinMicros !== undefined && now - checkedAt >= withinMicros,
  );
  return candidates.slice(0, Math.max(Math.floor(wanted), overdue.length));
}

/**
 * Like `chooseAudited`, but without the first segment if the source may no longer have
 * its first entry.
 */
export async function servedAudits(
  coverage: readonly Coverage[],
  choice: AuditChoice,
  repository: Pick<ExportRepository, 'firstEntry'>,
): Promise<readonly Coverage[]> {
  const chosen = chooseAudited(coverage, choice);
  if (chosen.every(({ from }) => from !== BEGINNING)) return chosen;
  const first = await repository.firstEntry(choice.scope.partyId);
  if (first !== undefined && isServed(first, choice)) return chosen;
  const behind = coverage.filter(({ from }) => from !== BEGINNING);
  return chooseAudited(behind, choice);
}

/**
 * Whether a range belongs to an epoch. Manifests of earlier versions record no epoch,
 * but until the chain restarts there is only one.
 */
function isOfEpoch(row: Coverage, epoch: number | undefined): boolean {
  const isFirst = (epoch ?? 1) === 1;
  return row.epoch === epoch || (row.epoch === undefined && isFirst);
}

/** Whether the source should still have entries from that time. */
function isServed(
  time: Micros,
  { now, retentionMicros = RETENTION_MICROS }: AuditChoice,
): boolean {
  return now - time < retentionMicros;
}

/**
 * Returns a number from 0 to 1 that stays the same for a ledger all day and changes the
 * next day.
 */
function chance({ partyId, assetId }: ExportScope, now: Micros): number {
  const name = `${partyId} ${assetId ?? 'all'} ${now / DAY_MICROS}`;
  return Number.parseInt(hash('sha256', name, 'hex').slice(0, 8), 16) / 2 ** 32;
}
