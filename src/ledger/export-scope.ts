/** The scope of an export: the unit that is requested, leased and published. */

/** A party's entries in one asset, or in all of them. */
export interface ExportScope {
  readonly partyId: string;
  /** The asset; absent if the scope covers all assets. */
  readonly assetId?: string | undefined;
  /**
   * Whether the source lists parties whose ids are not 64 hex digits. If so, any
   * printable string in its rows may be a party.
   */
  readonly hasOwnIds?: boolean | undefined;
  /** The party's id as spelled in the source's list, if that differs from `partyId`. */
  readonly listedAs?: string | undefined;
}
