/** Ownership checks of the object store, for stages and commands. */
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
   * Requires that this database may write to the store. Call this before anything is
   * written, removed or requested from the source.
   * @throws PermanentError `OBJECT_STORE_FOREIGN`, `OBJECT_STORE_OWNED_ELSEWHERE` or
   *   `OBJECT_STORE_EMPTY` if this database may not write
   */
  require(signal: AbortSignal, isRebuilding?: boolean): Promise<void>;
  /**
   * Like `require`, but called by a command before its run begins. It ignores an outage,
   * because the run itself will detect and record it.
   */
  refuseStrange(signal: AbortSignal, isRebuilding?: boolean): Promise<void>;
  /**
   * Examines the ownership without writing anything.
   * @throws the same errors as `require`, except that a reader is accepted
   */
  examine(signal: AbortSignal): Promise<StoreStanding>;
  /** Makes this database the owner. Only an operator may decide to do this. */
  takeOver(signal: AbortSignal): Promise<void>;
}

/**
 * Creates the ownership checks.
 * @param catalog contains the underlying store, not one that checks ownership
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
