/** The actions of a Delta log, as far as a table of reader version 1 and writer version 2 has them. */
import { z } from 'zod';

const strings = z.record(z.string(), z.string());
/** A checkpoint has every field of every action; those that are not there are null. */
const optional = <Schema extends z.ZodType>(schema: Schema): z.ZodOptional<z.ZodNullable<Schema>> =>
  z.optional(z.nullable(schema));

const partitionValues = z.record(z.string(), z.nullable(z.string()));
const add = z.object({
  path: z.string(),
  partitionValues,
  size: z.coerce.number(),
  modificationTime: z.coerce.number(),
  dataChange: z.boolean().default(true),
  stats: optional(z.string()),
  tags: optional(strings),
  deletionVector: optional(z.unknown()),
});
const remove = z.object({
  path: z.string(),
  deletionTimestamp: optional(z.coerce.number()),
  dataChange: z.boolean().default(true),
  extendedFileMetadata: optional(z.boolean()),
  partitionValues: optional(partitionValues),
  size: optional(z.coerce.number()),
});
const protocol = z.object({ minReaderVersion: z.number(), minWriterVersion: z.number() });
const metaData = z.object({
  id: z.string(),
  name: optional(z.string()),
  description: optional(z.string()),
  format: z.object({ provider: z.string(), options: optional(strings) }),
  schemaString: z.string(),
  partitionColumns: z.array(z.string()),
  configuration: optional(strings),
  createdTime: optional(z.coerce.number()),
});
const txn = z.object({
  appId: z.string(),
  version: z.coerce.number(),
  lastUpdated: optional(z.coerce.number()),
});
const commitInfo = z.object({ timestamp: optional(z.coerce.number()) });

const action = z.object({
  add: optional(add),
  remove: optional(remove),
  protocol: optional(protocol),
  metaData: optional(metaData),
  txn: optional(txn),
  commitInfo: optional(commitInfo),
});

export type AddFile = z.output<typeof add>;
export type RemoveFile = z.output<typeof remove>;
export type Protocol = z.output<typeof protocol>;
export type MetaData = z.output<typeof metaData>;
export type Transaction = z.output<typeof txn>;
export type Action = z.output<typeof action>;

/** @throws SyntaxError | z.ZodError where the line is no action */
export function parseAction(line: string): Action {
  return action.parse(JSON.parse(line));
}

/** A table at one version. */
export interface TableState {
  readonly version: number;
  /** When that version was committed, ms; 0 where the commit says nothing. */
  readonly committedMs: number;
  readonly protocol: Protocol;
  readonly metaData: MetaData;
  /** By application. */
  readonly txns: ReadonlyMap<string, Transaction>;
  /** By path, as the log has it. */
  readonly live: ReadonlyMap<string, AddFile>;
  readonly gone: ReadonlyMap<string, RemoveFile>;
  /** Of the checkpoint that was read; -1 where none was. */
  readonly checkpoint: number;
}

/**
 * The table after these actions, of which the last one about a thing counts.
 * @param from the table before them
 * @returns undefined where no action gave it a protocol and a schema
 */
export function replay(
  actions: readonly Action[],
  at: Pick<TableState, 'version' | 'checkpoint'>,
  from?: TableState,
): TableState | undefined {
  const [live, gone, txns] = [new Map(from?.live), new Map(from?.gone), new Map(from?.txns)];
  let { protocol, metaData } = from ?? {};
  let committedMs = 0;
  for (const { add: added, remove: removed, ...others } of actions) {
    protocol = others.protocol ?? protocol;
    metaData = others.metaData ?? metaData;
    committedMs = others.commitInfo?.timestamp ?? committedMs;
    if (others.txn) txns.set(others.txn.appId, others.txn);
    if (added) {
      live.set(added.path, added);
      gone.delete(added.path);
    }
    if (removed) {
      live.delete(removed.path);
      gone.set(removed.path, removed);
    }
  }
  return protocol && metaData && { ...at, committedMs, protocol, metaData, txns, live, gone };
}

/** What takes a file out of the table. */
export function removalOf(
  { path, partitionValues: values, size }: AddFile,
  dataChange: boolean,
  nowMs: number,
): Action {
  const details = { extendedFileMetadata: true, partitionValues: values, size };
  return { remove: { path, deletionTimestamp: nowMs, dataChange, ...details } };
}

export interface FilesTotal {
  readonly files: number;
  readonly rows: bigint;
  readonly bytes: bigint;
}

/** By what the log says of them. */
export function totalOfFiles(files: readonly AddFile[]): FilesTotal {
  return {
    files: files.length,
    rows: files.reduce((sum, file) => sum + (rowsOfFile(file) ?? 0n), 0n),
    bytes: files.reduce((sum, { size }) => sum + BigInt(size), 0n),
  };
}

/** Undefined where another writer made the file and left them out. */
export function rowsOfFile({ stats }: AddFile): bigint | undefined {
  const match = /"numRecords":\s*(\d{1,18})\b/.exec(stats ?? '');
  return match?.[1] === undefined ? undefined : BigInt(match[1]);
}
