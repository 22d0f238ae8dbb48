/**
 * Orders the entries of each block so that each balance follows from the one before it.
 * The source does not order the entries of a block, so no order is the true one. This one
 * is easy to follow.
 */
import type { MonthLine } from './store/account-statements.ts';

type AccountName = Pick<MonthLine, 'assetId' | 'accountType' | 'marketId'>;

/**
 * Orders lines that are sorted by time and, within an instant, by account. An entry whose
 * balance is unknown comes last in its block.
 * @param openings the balances before the first line; an account with several candidates
 *   is treated as having none
 */
export function chainLines(
  lines: readonly MonthLine[],
  openings: readonly (AccountName & { readonly opening: readonly string[] })[],
): readonly MonthLine[] {
  const balances = new Map(
    openings
      .filter(({ opening }) => opening.length === 1)
      .map((account) => [accountKey(account), account.opening[0]]),
  );
  const blocks = Map.groupBy(lines, (line) => `${line.at} ${accountKey(line)}`);
  return [...blocks.values()].flatMap((block) => {
    const [first] = block;
    if (first === undefined) return [];
    const key = accountKey(first);
    const chained = chainBlock(block, balances.get(key));
    const last = chained.findLast(({ balance }) => balance !== null);
    if (last?.balance != null) balances.set(key, last.balance);
    return chained;
  });
}

function accountKey({ assetId, accountType, marketId }: AccountName): string {
  return JSON.stringify([assetId, accountType, marketId]);
}

/** An entry, as a step from the balance before it to the balance after it. */
interface Step {
  readonly line: MonthLine;
  readonly from: string;
  readonly to: string;
}

/**
 * Orders the entries of one account in one block, as a walk from balance to balance that
 * takes each entry once. If no single walk takes them all, several walks follow one
 * another.
 */
function chainBlock(
  block: readonly MonthLine[],
  before: string | undefined,
): readonly MonthLine[] {
  if (block.length === 1) return block;
  const steps = block.flatMap((line): Step[] =>
    line.balance === null
      ? []
      : [
          {
            line,
            from: `${BigInt(line.balance) - BigInt(line.change)}`,
            to: line.balance,
          },
        ],
  );
  const left = Map.groupBy(steps, ({ from }) => from);
  const surplus = new Map<string, number>();
  for (const { from, to } of steps) {
    surplus.set(from, (surplus.get(from) ?? 0) + 1);
    surplus.set(to, (surplus.get(to) ?? 0) - 1);
  }
  // A walk begins at a balance that more entries leave than reach. If there is no such
  // balance, the walk begins at the balance before the block.
  const starts = [
    ...[...surplus].flatMap(([balance, count]) =>
      Array.from({ length: Math.max(count, 0) }, () => balance),
    ),
    ...(before === undefined ? [] : [before]),
    ...left.keys(),
  ];
  return [
    ...starts.flatMap((start) => walk(left, start)),
    ...block.filter(({ balance }) => balance === null),
  ];
}

/**
 * Walks from a balance until no step is left that the walk can reach, and removes the
 * steps taken from `left`. At a balance without a further step, the walk backs up to the
 * last balance that has one, and inserts a round trip there (Hierholzer's algorithm).
 */
function walk(left: Map<string, Step[]>, start: string): readonly MonthLine[] {
  const open: Step[] = [];
  const walked: MonthLine[] = [];
  let at = start;
  for (;;) {
    const next = left.get(at)?.shift();
    if (next !== undefined) {
      open.push(next);
      at = next.to;
      continue;
    }
    const done = open.pop();
    if (done === undefined) return walked.toReversed();
    walked.push(done.line);
    at = done.from;
  }
}
