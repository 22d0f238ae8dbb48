/** The records of coverage in the store: each is proven before what it says is believed. */
import { createHash } from 'node:crypto';
import { PermanentError } from '../core/errors.ts';
import { compareIds } from '../core/ids.ts';
import {
  decodeHead,
  decodeParty,
  invalidRecord,
  type PartyCoverage,
  readRecordKey,
  type RecordName,
  RECORDS_PREFIX,
  recordsOf,
} from '../ledger/objects/coverage-record.ts';
import { isArchiveDamage, plainStream } from '../ledger/objects/plain-stream.ts';
import type { ObjectStore } from '../objects/object-store.ts';

/** What was recorded of a party, and by which number. */
export interface RecordedParty extends PartyCoverage {
  readonly seq: bigint;
}

interface SoundRecord extends RecordName {
  readonly key: string;
}

export interface CoverageRecords {
  /** The newest one's. */
  readonly lineage: { readonly warehouseId: string; readonly seq: bigint } | undefined;
  /** What each of them says. */
  readonly parties: readonly AsyncGenerator<RecordedParty>[];
}

/** @param onProblem told of each record that cannot be used; it is left out */
export async function readRecords(
  objects: ObjectStore,
  onProblem: (key: string, error: PermanentError) => void,
  signal: AbortSignal,
  warehouseId?: string,
): Promise<CoverageRecords> {
  const sound: SoundRecord[] = [];
  const prefix = warehouseId === undefined ? RECORDS_PREFIX : recordsOf(warehouseId);
  for await (const { key } of objects.list(prefix, signal)) {
    try {
      sound.push(await checked(key, objects, signal));
    } catch (error) {
      if (!(error instanceof PermanentError)) throw error;
      onProblem(key, error);
    }
  }
  const newest = sound.toSorted((a, b) => (a.seq < b.seq ? 1 : -1))[0];
  return { lineage: newest, parties: sound.map((record) => recordedParties(record, objects, signal)) };
}

/** Read to its end once: what is believed later was whole. */
async function checked(key: string, objects: ObjectStore, signal: AbortSignal): Promise<SoundRecord> {
  const name = readRecordKey(key);
  if (name === undefined) throw invalidRecord(key, 'it has not the name of one');
  const hash = createHash('sha256');
  let lines = 0;
  let last = '';
  for await (const line of recordLines(key, objects, signal)) {
    hash.update(`${line}\n`);
    lines += 1;
    if (lines === 1) {
      const { seq, warehouseId } = decodeHead(line, key);
      if (seq !== name.seq || warehouseId !== name.warehouseId) throw invalidRecord(key, 'it is another one');
      continue;
    }
    const { partyId } = decodeParty(line, key);
    if (compareIds(partyId, last) <= 0) throw invalidRecord(key, 'its parties are not in order');
    last = partyId;
  }
  if (!hash.digest('hex').startsWith(name.sha256)) throw invalidRecord(key, 'its bytes were changed');
  return { ...name, key };
}

async function* recordLines(key: string, objects: ObjectStore, signal: AbortSignal): AsyncGenerator<string> {
  let rest = '';
  try {
    for await (const chunk of plainStream(await objects.read(key, signal), 'zstd').setEncoding('utf8')) {
      const lines = (rest + String(chunk)).split('\n');
      rest = lines.pop() ?? '';
      yield* lines;
    }
  } catch (error) {
    throw isArchiveDamage(error) ? invalidRecord(key, 'it is damaged', error) : error;
  }
  if (rest !== '') throw invalidRecord(key, 'it ends in the middle of a line');
}

/** In the order of their ids, each once. */
async function* recordedParties(
  { key, seq }: SoundRecord,
  objects: ObjectStore,
  signal: AbortSignal,
): AsyncGenerator<RecordedParty> {
  let isHead = true;
  for await (const line of recordLines(key, objects, signal)) {
    if (!isHead) yield { ...decodeParty(line, key), seq };
    isHead = false;
  }
}
