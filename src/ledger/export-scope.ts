/** The scope of an export: the unit that is requested, leased and published. */

/** A party's entries in one asset, or in all of them. */
export interface ExportScope {
  readonly partyId: string;
  /** The asset; absent if the scope is every asset. */
  readonly assetId?: string | undefined;
  /**
   * Whether the source lists parties whose ids are not 64 hex digits. If so, any
   * printable text in its rows may be a party.
   */
  readonly hasOwnIds?: boolean | undefined;
  /** The party's id as the source's list spells it, if that differs from `partyId`. */
  readonly listedAs?: string | undefined;
}
