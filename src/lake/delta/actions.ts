/** The actions of a Delta log, as far as a table of reader version 1 and writer version 2 has them. */
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
    protocol: z.object({ minReaderVersion: z.number(), minWriterVersion: z.number() }),
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
    txn: z.object({ appId: z.string(), version: number, lastUpdated: number.optional() }),
    commitInfo: z.object({ timestamp: number.optional() }),
  })
  .partial();

export type Action = z.output<typeof action>;
export type AddFile = NonNullable<Action['add']>;
export type MetaData = NonNullable<Action['metaData']>;

/**
 * A checkpoint has every field of every action: what is null is not there.
 * @throws SyntaxError | z.ZodError where the line is no action
 */
export function parseAction(line: string): Action {
  return action.parse(JSON.parse(line, (_key, value: unknown) => value ?? undefined));
}

/** A table at one version. */
export interface TableState {
  readonly version: number;
  /** When that version was committed, ms; 0 where the commit says nothing. */
  readonly committedMs: number;
  readonly protocol: NonNullable<Action['protocol']>;
  readonly metaData: MetaData;
  /** By application. */
  readonly txns: ReadonlyMap<string, NonNullable<Action['txn']>>;
  /** By path, as the log has it. */
  readonly live: ReadonlyMap<string, AddFile>;
  readonly gone: ReadonlyMap<string, NonNullable<Action['remove']>>;
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
  const live = new Map(from?.live);
  const gone = new Map(from?.gone);
  const txns = new Map(from?.txns);
  let { protocol, metaData } = from ?? {};
  let committedMs = 0;
  for (const { add, remove, txn, ...others } of actions) {
    protocol = others.protocol ?? protocol;
    metaData = others.metaData ?? metaData;
    committedMs = others.commitInfo?.timestamp ?? committedMs;
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
  return (
    protocol && metaData && { ...at, committedMs, protocol, metaData, txns, live, gone }
  );
}

/** By what the log says of the files. */
export function totalOfFiles(files: readonly AddFile[]): {
  files: number;
  rows: bigint;
  bytes: bigint;
} {
  return {
    files: files.length,
    rows: files.reduce((sum, file) => sum + (rowsOfFile(file) ?? 0n), 0n),
    bytes: files.reduce((sum, { size }) => sum + BigInt(size), 0n),
  };
}

/** Undefined where another writer made the file and left them out. */
export function rowsOfFile({ stats }: AddFile): bigint | undefined {
  const [, rows] = /"numRecords":\s*(\d{1,18})\b/.exec(stats ?? '') ?? [];
  return rows === undefined ? undefined : BigInt(rows);
}
