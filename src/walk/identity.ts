/**
 * Is this still the chain that is mirrored? Heights that went down mean a node that lags, a network that
 * began again from block one, or another network altogether; only what is stored can tell which. The
 * earliest checkpoint is no fingerprint: the source drops it within a week.
 */
import { NETWORK_PARTY } from '../core/ids.ts';
import { PermanentError, RetryableError, UnreachableError } from '../core/errors.ts';
import type { WalkContext } from './context.ts';
import type { HeightOnRecord, ListedRow, ListName, WalkSession } from './ports.ts';

export type Identity =
  /** Nothing speaks against it; `lagging` where the same chain is served, but less of it than before. */
  | { readonly kind: 'same' | 'lagging'; readonly evidence: Readonly<Record<string, unknown>> }
  /** The same parties on a chain that began again. */
  | { readonly kind: 'reset'; readonly evidence: Readonly<Record<string, unknown>> }
  /** No party of it was ever seen. */
  | { readonly kind: 'another'; readonly evidence: Readonly<Record<string, unknown>> }
  /** Heights went down, and nothing that is stored can tell why. */
  | { readonly kind: 'unknown'; readonly evidence: Readonly<Record<string, unknown>> };

export interface Fingerprint {
  /** Checkpoints served now at heights on record: how many agree, how many cannot be of this chain. */
  readonly agreeing: number;
  readonly foreign: number;
  /** Whether every height served now lies below all on record. */
  readonly isBelowAll: boolean;
  /** Of the oldest parties, which stay the same while a network lives. Undefined where they cannot be compared. */
  readonly oldestKnown: boolean | undefined;
  readonly heightWentDown: boolean;
}

const SAMPLE_ROWS = 200;

/** Compares both ends of the checkpoints and the oldest parties with what is stored: three requests. */
export async function identify(context: WalkContext, height: bigint | undefined): Promise<Identity> {
  const { session } = context;
  const before = session.heightBefore;
  const checkpoints = [
    ...(await sample(context, 'checkpoints', true)),
    ...(await sample(context, 'checkpoints', false)),
  ];
  const parties = (await sample(context, 'parties', false)).filter(({ group }) => group !== NETWORK_PARTY);
  const known = await session.knownParties(parties.map(({ key }) => key));
  return judge({
    ...(await compare(session, checkpoints)),
    oldestKnown: parties.length === 0 || !known.anyOnRecord ? undefined : known.known > 0,
    heightWentDown: height !== undefined && before !== undefined && height < before,
  });
}

/** What the comparison means. */
export function judge(print: Fingerprint): Identity {
  const evidence = { ...print };
  if (print.foreign === 0 && print.agreeing > 0) {
    return { kind: print.heightWentDown ? 'lagging' : 'same', evidence };
  }
  const isOtherChain = print.foreign > 0 || (print.isBelowAll && print.heightWentDown);
  if (isOtherChain) return { kind: print.oldestKnown === true ? 'reset' : 'another', evidence };
  if (print.oldestKnown === false) return { kind: 'another', evidence };
  if (print.heightWentDown) return { kind: 'unknown', evidence };
  return { kind: 'same', evidence };
}

async function compare(
  session: Pick<WalkSession, 'checkpointsAt' | 'heightsOnRecord'>,
  served: readonly ListedRow[],
): Promise<Pick<Fingerprint, 'agreeing' | 'foreign' | 'isBelowAll'>> {
  const onRecord = await session.checkpointsAt(served.map(({ group }) => group));
  let agreeing = 0;
  let foreign = 0;
  for (const row of served) {
    const held: HeightOnRecord | undefined = onRecord.get(row.group);
    const blockHash = row.fields[2] ?? '';
    if (held?.blockHashes.includes(blockHash) === true) agreeing += 1;
    else if (held !== undefined && (held.proven || held.blockHashes.length > 0)) foreign += 1;
  }
  const lowest = (await session.heightsOnRecord())?.lowest;
  const isBelowAll =
    served.length > 0 && lowest !== undefined && served.every(({ group }) => BigInt(group) < lowest);
  return { agreeing, foreign, isBelowAll };
}

/** A list that cannot be had gives no fingerprint; the walk itself meets the same source and says why. */
async function sample(
  context: WalkContext,
  list: ListName,
  newestFirst: boolean,
): Promise<readonly ListedRow[]> {
  const size = Math.min(SAMPLE_ROWS, context.pageSize);
  context.tally.requests += 1;
  try {
    return (await context.deps.source.page({ list, newestFirst, size }, context.signal)).rows;
  } catch (error) {
    if (error instanceof UnreachableError) throw error;
    if (error instanceof RetryableError || error instanceof PermanentError) return [];
    throw error;
  }
}
