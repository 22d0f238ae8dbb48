/** The ownership of the object store, for stages and commands. */
import {
  examineStore,
  isStoreStrange,
  requireOwnership,
  type StoreStanding,
  takeOverStore,
} from '../warehouse/store/store-ownership.ts';
import type { StoreAndCatalog } from '../warehouse/store/unknown-objects.ts';

export interface Ownership {
  /**
   * Must be called before anything is written, removed or requested from the source.
   * @throws PermanentError `OBJECT_STORE_FOREIGN`, `OBJECT_STORE_OWNED_ELSEWHERE` or
   *   `OBJECT_STORE_EMPTY` if this database may not write
   */
  require(signal: AbortSignal, isRebuilding?: boolean): Promise<void>;
  /**
   * Like `require`, for a command before its run begins. An outage is ignored here: the
   * run itself meets and records it.
   */
  refuseStrange(signal: AbortSignal, isRebuilding?: boolean): Promise<void>;
  /**
   * Examines the ownership and writes nothing.
   * @throws like `require`, but accepts a reader
   */
  examine(signal: AbortSignal): Promise<StoreStanding>;
  /** Makes this database the owner. Only an operator may decide this. */
  takeOver(signal: AbortSignal): Promise<void>;
}

/**
 * Creates the ownership checks.
 * @param catalog has the store itself, not a store that checks its ownership
 */
export function openOwnership(catalog: StoreAndCatalog): Ownership {
  const refuseStrange = async (
    signal: AbortSignal,
    isRebuilding?: boolean,
  ): Promise<void> => {
    try {
      await requireOwnership(catalog, signal, isRebuilding);
    } catch (error) {
      if (isStoreStrange(error)) throw error;
    }
  };
  return {
    refuseStrange,
    require: (signal, isRebuilding) =>
      requireOwnership(catalog, signal, isRebuilding),
    examine: (signal) => examineStore(catalog, signal),
    takeOver: (signal) => takeOverStore(catalog, signal),
  };
}
