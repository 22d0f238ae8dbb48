/**
 * Reads the lists back from the lake after the database was lost or restored from a
 * backup. The source keeps checkpoints for only a few days, so the lake may have the last
 * copy of older ones.
 */
import { errorCode } from '../../errors/errors.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import { openLake } from './lake.ts';

/** A party as stored in the lake. */
export interface LakeParty {
  readonly partyId: string;
  /** When the mirror first saw the party, as RFC 3339. */
  readonly firstSeenAt: string;
  /** The other fields of the list's row, as JSON; null if there were none. */
  readonly extra: string | null;
}

/** A checkpoint as stored in the lake. */
export interface LakeCheckpoint {
  readonly epoch: number;
  /** The block height, in decimal. */
  readonly atBlock: string;
  readonly hash: string;
  readonly blockHash: string;
  /** When the mirror first saw the checkpoint, as RFC 3339. */
  readonly firstSeenAt: string;
  /** The other fields of the list's row, as JSON; null if there were none. */
  readonly extra: string | null;
}

/** Receives the rows of the lists in batches; all checkpoints come before the parties. */
export interface ListsReader {
  checkpoints(rows: readonly LakeCheckpoint[]): Promise<void>;
  parties(rows: readonly LakeParty[]): Promise<void>;
}

export interface LakeListsOptions {
  readonly objects: ObjectStore;
  readonly scratchDir: string;
}

const SEEN = `strftime(first_seen_at at time zone 'UTC', '%Y-%m-%dT%H:%M:%S.%fZ')`;
const CHECKPOINTS = `select epoch, at_block::varchar, hash, block_hash, ${SEEN}, extra
  from checkpoints`;
const PARTIES = `select party_id, ${SEEN}, extra from parties`;

/**
 * Passes the rows of the newest snapshot to `reader`.
 * @returns false if there is no lake
 * @throws PermanentError `LAKE_…` if the lake is damaged
 */
export async function readLists(
  options: LakeListsOptions,
  reader: ListsReader,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    const sql = `${CHECKPOINTS}; ${PARTIES}`;
    await using lake = await openLake({ ...options, sql }, signal);
    const { connection } = lake;
    const checkpoints = await connection.stream(CHECKPOINTS);
    for await (const rows of checkpoints.yieldRowsJson()) {
      await reader.checkpoints(
        rows.map(([epoch, atBlock, hash, blockHash, firstSeenAt, extra]) => ({
          epoch: Number(epoch),
          atBlock: textOf(atBlock) ?? '',
          hash: textOf(hash) ?? '',
          blockHash: textOf(blockHash) ?? '',
          firstSeenAt: textOf(firstSeenAt) ?? '',
          extra: textOf(extra),
        })),
      );
      signal.throwIfAborted();
    }
    const parties = await connection.stream(PARTIES);
    for await (const rows of parties.yieldRowsJson()) {
      await reader.parties(
        rows.map(([partyId, firstSeenAt, extra]) => ({
          partyId: textOf(partyId) ?? '',
          firstSeenAt: textOf(firstSeenAt) ?? '',
          extra: textOf(extra),
        })),
      );
      signal.throwIfAborted();
    }
    return true;
  } catch (error) {
    if (errorCode(error) === 'LAKE_MISSING') return false;
    throw error;
  }
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}
