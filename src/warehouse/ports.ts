/** The problems that verification reports, and the interface of the lake's check. */

/** A disagreement between a record and the stored data. */
export interface Problem {
  /** A stable identity, for example `OBJECT_CORRUPT`. */
  readonly code: string;
  /** The object, table or file concerned. */
  readonly subject: string;
  readonly message: string;
}

/** The reason why a segment cannot be used. */
export interface Reason {
  readonly code: string;
  readonly message: string;
}

/** The findings of a check of the lake. */
export interface LakeFindings {
  readonly files: number;
  /**
   * How many of the files were read. For the others, only their existence was checked.
   */
  readonly filesRead: number;
  readonly rows: bigint;
  /**
   * Segments that were loaded or unloaded after the last build of the lake. They are
   * not a problem: the next build adds or removes them.
   */
  readonly segmentsBehind: number;
  readonly problems: readonly Problem[];
}

/** Checks the lake. The lake's own module implements it. */
export type LakeCheck = (
  options: LakeCheckOptions,
  signal: AbortSignal,
) => Promise<LakeFindings>;

export interface LakeCheckOptions {
  /** Whether to sum the values of every row too. */
  readonly deep: boolean;
  /**
   * If set, only the files that were never proven, and one in `parts` of the others,
   * are read; if absent, all files.
   */
  readonly parts?: number;
}
