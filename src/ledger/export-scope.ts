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
  /**
   * Whether the last reading of the list of parties ended without a claim and did not
   * show this party, so that the source may know it by another spelling.
   */
  readonly isUnlisted?: boolean | undefined;
}
