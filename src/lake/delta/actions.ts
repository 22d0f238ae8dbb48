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
const protocol = z.object({
  minReaderVersion: z.number(),
  minWriterVersion: z.number(),
  readerFeatures: optional(z.array(z.string())),
  writerFeatures: optional(z.array(z.string())),
});
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
const commitInfo = z.object({
  timestamp: optional(z.coerce.number()),
  operation: optional(z.string()),
  engineInfo: optional(z.string()),
});

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

/** Puts one action after the other together; the last one about a thing counts. */
export class Replay {
  readonly #live: Map<string, AddFile>;
  readonly #gone: Map<string, RemoveFile>;
  readonly #txns: Map<string, Transaction>;
  #protocol: Protocol | undefined;
  #metaData: MetaData | undefined;
  #committedMs = 0;

  constructor(from?: TableState) {
    this.#live = new Map(from?.live);
    this.#gone = new Map(from?.gone);
    this.#txns = new Map(from?.txns);
    this.#protocol = from?.protocol;
    this.#metaData = from?.metaData;
  }

  apply({ add: added, remove: removed, ...others }: Action): void {
    this.#protocol = others.protocol ?? this.#protocol;
    this.#metaData = others.metaData ?? this.#metaData;
    this.#committedMs = others.commitInfo?.timestamp ?? this.#committedMs;
    if (others.txn) this.#txns.set(others.txn.appId, others.txn);
    if (added) {
      this.#live.set(added.path, added);
      this.#gone.delete(added.path);
    }
    if (removed) {
      this.#live.delete(removed.path);
      this.#gone.set(removed.path, removed);
    }
  }

  /** Undefined where no action gave it a protocol and a schema. */
  state(version: number, checkpoint: number): TableState | undefined {
    const [protocol, metaData, committedMs] = [this.#protocol, this.#metaData, this.#committedMs];
    if (!protocol || !metaData) return undefined;
    const [txns, live, gone] = [this.#txns, this.#live, this.#gone];
    return { version, committedMs, protocol, metaData, txns, live, gone, checkpoint };
  }
}

/** What takes a file out of the table. */
export function removalOf(file: AddFile, dataChange: boolean, nowMs: number): Action {
  const { path, partitionValues: values, size } = file;
  return {
    remove: {
      path,
      deletionTimestamp: nowMs,
      dataChange,
      extendedFileMetadata: true,
      partitionValues: values,
      size,
    },
  };
}
