/**
 * Restores the lists from the lake after a database was lost or reset to an earlier
 * state.
 */
import { errorCode, errorLine } from '../errors/errors.ts';
import { type ListsReader, readLists } from '../lake/query/read-lists.ts';
import {
  restoreCheckpoints,
  restoreParties,
} from '../lists/store/restore-lists.ts';
import type { Database } from '../postgres/database.ts';
import type { ObjectStore } from '../storage/object-store.ts';

export interface RestoreListsDeps {
  readonly db: Database;
  readonly objects: ObjectStore;
  readonly scratchDir: string;
}

/**
 * How many rows were missing from the database, and the reason if the lake could not be
 * read.
 */
export interface RestoredLists {
  readonly checkpoints: number;
  readonly parties: number;
  readonly problem?: string;
}

/**
 * Restores the lists. A damaged lake is reported as a problem, not thrown as an error.
 * Nothing is lost by continuing, because the lake keeps its list rows until the source's
 * lists are proven.
 */
export async function restoreLists(
  { db, objects, scratchDir }: RestoreListsDeps,
  signal: AbortSignal,
): Promise<RestoredLists> {
  let checkpoints = 0;
  let parties = 0;
  const reader: ListsReader = {
    checkpoints: async (rows) => {
      checkpoints += await restoreCheckpoints(db, rows);
    },
    parties: async (rows) => {
      parties += await restoreParties(db, rows);
    },
  };
  try {
    await readLists({ objects, scratchDir }, reader, signal);
    return { checkpoints, parties };
  } catch (error) {
    if (!errorCode(error).startsWith('LAKE_')) throw error;
    return { checkpoints, parties, problem: errorLine(error) };
  }
}
