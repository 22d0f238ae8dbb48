/** The problems that verification reports, and the interface of the lake's check. */

/** A disagreement between a record and the stored data. */
export interface Problem {
  /** A stable code, for example `OBJECT_CORRUPT`. */
  readonly code: string;
  /** The affected object, table or file. */
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
  /** Number of files that were read. The others were only checked for existence. */
  readonly filesRead: number;
  readonly rows: bigint;
  /**
   * Segments that were loaded or unloaded after the last build of the lake. This is not a
   * problem, because the next build adds or removes them.
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
  /** Whether to also sum the values of every row. */
  readonly deep: boolean;
  /**
   * If set, only the files that were never proven, and one in `parts` of the others,
   * are read; if absent, all files.
   */
  readonly parts?: number;
}
