/** One line of live progress: a bar where `total` is known. Counts are text so that none loses digits. */
export interface ProgressLine {
  readonly label: string;
  readonly done: string;
  readonly total?: string | undefined;
  readonly unit: 'rows' | 'bytes' | 'parties' | 'segments' | 'files';
  readonly note?: string | undefined;
  /** One piece of what another line counts: it ends without a word of its own. */
  readonly isPart?: boolean | undefined;
}
