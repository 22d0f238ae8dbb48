/**
 * The actions that can occur in the Delta log of a table with reader version 1 and writer
 * version 2.
 */
import { z } from 'zod';

const strings = z.record(z.string(), z.string());
const number = z.coerce.number();

const action = z
  .object({
    add: z.object({
      path: z.string(),
      partitionValues: strings,
      size: number,
      modificationTime: number,
      dataChange: z.boolean().default(true),
      stats: z.string().optional(),
      tags: strings.optional(),
      deletionVector: z.unknown().optional(),
    }),
    remove: z.object({
      path: z.string(),
      deletionTimestamp: number.optional(),
      dataChange: z.boolean().default(true),
      extendedFileMetadata: z.boolean().optional(),
      partitionValues: strings.optional(),
      size: number.optional(),
    }),
    protocol: z.object({
      minReaderVersion: z.number(),
      minWriterVersion: z.number(),
    }),
    metaData: z.object({
      id: z.string(),
      name: z.string().optional(),
      description: z.string().optional(),
      format: z.object({ provider: z.string(), options: strings.optional() }),
      schemaString: z.string(),
      partitionColumns: z.array(z.string()),
      configuration: strings.optional(),
      createdTime: number.optional(),
    }),
    txn: z.object({
      appId: z.string(),
      version: number,
      lastUpdated: number.optional(),
    }),
    commitInfo: z.object({ timestamp: number.optional() }),
  })
  .partial();

export type Action = z.output<typeof action>;
export type AddFile = NonNullable<Action['add']>;
export type MetaData = NonNullable<Action['metaData']>;

/**
 * Parses one line of a commit, or one row of a checkpoint. A row of a checkpoint has
 * the fields of all actions, so null is treated as absent.
 * @throws SyntaxError | z.ZodError if the line is not an action
 */
export function parseAction(line: string): Action {
  return action.parse(
    JSON.parse(line, (_key, value: unknown) => value ?? undefined),
  );
}

/** The state of a table at one version. */
export interface TableState {
  readonly version: number;
  /**
   * When the version was committed, in ms since 1970; 0 if the commit has no timestamp.
   */
  readonly committedMs: number;
  readonly protocol: NonNullable<Action['protocol']>;
  readonly metaData: MetaData;
  /** The last transaction of each application, by application id. */
  readonly txns: ReadonlyMap<string, NonNullable<Action['txn']>>;
  /** The table's files, by their paths in the log. */
  readonly live: ReadonlyMap<string, AddFile>;
  /** The files that were removed, by path. */
  readonly gone: ReadonlyMap<string, NonNullable<Action['remove']>>;
  /**
   * Version of the checkpoint that the state was read from; -1 if it was read from
   * commits alone.
   */
  readonly checkpoint: number;
}

/**
 * Applies actions to a table. If several actions concern the same file, application or
 * schema, the last one wins.
 * @param from the table's state before these actions
 * @returns undefined if no action gave the table a protocol and a schema
 */
export function replay(
  actions: readonly Action[],
  at: Pick<TableState, 'version' | 'checkpoint'>,
  from?: TableState,
): TableState | undefined {
  const live = new Map(from?.live);
  const gone = new Map(from?.gone);
  const txns = new Map(from?.txns);
  let { protocol, metaData } = from ?? {};
  let committedMs = 0;
  for (const next of actions) {
    const { add, remove, txn } = next;
    protocol = next.protocol ?? protocol;
    metaData = next.metaData ?? metaData;
    committedMs = next.commitInfo?.timestamp ?? committedMs;
    if (txn) txns.set(txn.appId, txn);
    if (add) {
      live.set(add.path, add);
      gone.delete(add.path);
    }
    if (remove) {
      live.delete(remove.path);
      gone.set(remove.path, remove);
    }
  }
  if (protocol === undefined || metaData === undefined) return undefined;
  return { ...at, committedMs, protocol, metaData, txns, live, gone };
}

/** The number of files, and their total rows and bytes. */
export interface FileTotals {
  readonly files: number;
  readonly rows: bigint;
  readonly bytes: bigint;
}

/** Adds up the sizes and row counts that the log records for these files. */
export function totalOfFiles(files: readonly AddFile[]): FileTotals {
  return {
    files: files.length,
    rows: files.reduce((sum, file) => sum + (rowsOfFile(file) ?? 0n), 0n),
    bytes: files.reduce((sum, { size }) => sum + BigInt(size), 0n),
  };
}

/**
 * Reads the file's row count from its statistics.
 * @returns undefined if the file is from another writer that left out its statistics
 */
export function rowsOfFile({ stats }: AddFile): bigint | undefined {
  const [, rows] = /"numRecords":\s*(\d{1,18})\b/.exec(stats ?? '') ?? [];
  return rows === undefined ? undefined : BigInt(rows);
}
