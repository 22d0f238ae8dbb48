/** What verifying needs from the lake. */

/** Something recorded that does not agree with what is there. */
export interface Problem {
  /** Stable, for example `OBJECT_CORRUPT`. */
  readonly code: string;
  /** The object, table or file concerned. */
  readonly subject: string;
  readonly message: string;
}

export interface LakeFindings {
  readonly files: number;
  /** How many of them were read; of the others it is known that they are there. */
  readonly filesRead: number;
  readonly rows: bigint;
  /** Loaded or unloaded since the last build: no fault, the next build brings them. */
  readonly segmentsBehind: number;
  readonly problems: readonly Problem[];
}

/** The lake's own check; it lies with the lake. */
export type LakeCheck = (
  options: LakeCheckOptions,
  signal: AbortSignal,
) => Promise<LakeFindings>;

export interface LakeCheckOptions {
  /** Also sums the values of every row. */
  readonly deep: boolean;
  /** Reads the files that were never proven, and of the others one in so many; all of them by default. */
  readonly parts?: number;
}
