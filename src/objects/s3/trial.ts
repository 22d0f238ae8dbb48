/** What an S3 server really does with writes, tried out below `probe/`: rights, parts, conditions, a race. */
import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3';
import { PermanentError } from '../../core/errors.ts';
import type { ConditionSupport, StoreCapabilities } from '../object-store.ts';
import type { Target } from './reading.ts';
import { isConditionUnknown, isTaken, s3Error } from './errors.ts';
import { type Step, trialSteps } from '../trial-steps.ts';

const PROBE_PREFIX = 'probe/';
/** Of probes whose process was killed. */
const LEFT_BEHIND_MS = 3_600_000;
const RACERS = 4;
/** As everything that is written later. */
const CHECKSUM = { ChecksumAlgorithm: 'SHA256' } as const;
const TEXT = 'ledger-mirror tries this store out\n';

interface Where {
  readonly url: string;
  readonly bucket: string;
  /** Empty, or with a slash at its end. */
  readonly prefix: string;
}

/** @throws what the store refused, classified; UnreachableError where a step gets no answer in time */
export async function tryOutS3(
  client: S3Client,
  where: Where,
  signal: AbortSignal,
  stepMaxMs: number,
): Promise<StoreCapabilities> {
  const steps = trialSteps(where.url, signal, stepMaxMs);
  const step: Step = (what, work) =>
    steps(what, (either) =>
      work(either).catch((error: unknown) => {
        throw s3Error(what, where.url, error);
      }),
    );
  const trial = new Trial(client, where, step);
  try {
    return await trial.run();
  } finally {
    await trial.cleanUp();
  }
}

class Trial {
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #folder: string;
  readonly #step: Step;
  readonly #id = randomUUID();
  readonly #made = new Set<string>();

  constructor(client: S3Client, { bucket, prefix }: Where, step: Step) {
    this.#client = client;
    this.#bucket = bucket;
    this.#folder = prefix + PROBE_PREFIX;
    this.#step = step;
  }

  async run(): Promise<StoreCapabilities> {
    const target = this.#target('one');
    await this.#step('write an object', (abortSignal) =>
      this.#client.send(new PutObjectCommand({ ...target, ...CHECKSUM, Body: TEXT }), { abortSignal }),
    );
    await this.#step('read a range of an object', (signal) => this.#readBack(target, signal));
    const old = await this.#step('list objects', (signal) => this.#list(target.Key, signal));
    const put = await this.#step('write an object that is there', (signal) => this.#putOver(target, signal));
    const multipart = await this.#step('send an object in parts', (signal) => this.#sendPart(target, signal));
    const winners = await this.#step('write one object from several sides', (signal) => this.#race(signal));
    await this.#step('remove an object', (signal) => this.#remove(target.Key, signal));
    for (const key of old) this.#made.add(key);
    return { put, multipart, hasOneWinner: winners === 1 };
  }

  /** A later trial removes what could not be removed here. */
  async cleanUp(): Promise<void> {
    for (const key of this.#made) {
      try {
        await this.#step('remove an object', (signal) => this.#remove(key, signal));
      } catch {
        return;
      }
    }
  }

  #target(name: string): Target {
    const Key = `${this.#folder}${this.#id}.${name}`;
    this.#made.add(Key);
    return { Bucket: this.#bucket, Key };
  }

  async #readBack(target: Target, abortSignal: AbortSignal): Promise<void> {
    const { Body: body } = await this.#client.send(new GetObjectCommand({ ...target, Range: 'bytes=7-12' }), {
      abortSignal,
    });
    if (body instanceof Readable && (await buffer(body)).toString() === TEXT.slice(7, 13)) return;
    throw new PermanentError('Cannot use the object store: it reads other bytes than were written', {
      code: 'OBJECT_STORE_CONFIGURATION',
    });
  }

  /** @returns keys of probes that were left behind long ago */
  async #list(key: string, abortSignal: AbortSignal): Promise<readonly string[]> {
    const command = new ListObjectsV2Command({ Bucket: this.#bucket, Prefix: this.#folder });
    const { Contents: found = [], IsTruncated: isCut } = await this.#client.send(command, { abortSignal });
    if (isCut !== true && !found.some(({ Key }) => Key === key)) {
      throw new PermanentError('Cannot use the object store: it does not list what was written', {
        code: 'OBJECT_STORE_CONFIGURATION',
      });
    }
    const before = Date.now() - LEFT_BEHIND_MS;
    return found.flatMap(({ Key, LastModified }) =>
      Key !== undefined && (LastModified?.getTime() ?? before) < before ? [Key] : [],
    );
  }

  #putOver(target: Target, abortSignal: AbortSignal): Promise<ConditionSupport> {
    const command = new PutObjectCommand({ ...target, ...CHECKSUM, Body: 'other bytes\n', IfNoneMatch: '*' });
    return supportOf(this.#client.send(command, { abortSignal }));
  }

  async #sendPart(target: Target, abortSignal: AbortSignal): Promise<ConditionSupport> {
    const { UploadId } = await this.#client.send(
      new CreateMultipartUploadCommand({ ...target, ...CHECKSUM }),
      { abortSignal },
    );
    const upload = { ...target, UploadId };
    try {
      const part = new UploadPartCommand({ ...upload, ...CHECKSUM, PartNumber: 1, Body: 'a part\n' });
      const { ETag, ChecksumSHA256 } = await this.#client.send(part, { abortSignal });
      const MultipartUpload = { Parts: [{ PartNumber: 1, ETag, ChecksumSHA256 }] };
      const command = new CompleteMultipartUploadCommand({ ...upload, MultipartUpload, IfNoneMatch: '*' });
      return await supportOf(this.#client.send(command, { abortSignal }));
    } finally {
      // Completed, it is gone; what is left otherwise, the sweep finds.
      await this.#client
        .send(new AbortMultipartUploadCommand(upload), { abortSignal })
        .catch(() => undefined);
    }
  }

  /** @returns how many of several writers of different bytes were told that they wrote */
  async #race(abortSignal: AbortSignal): Promise<number> {
    const target = this.#target('raced');
    const racing = Array.from({ length: RACERS }, (_, index) => {
      const command = new PutObjectCommand({
        ...target,
        ...CHECKSUM,
        Body: `writer ${index}\n`,
        IfNoneMatch: '*',
      });
      return supportOf(this.#client.send(command, { abortSignal }));
    });
    // Without a condition, each is told so.
    return (await Promise.all(racing)).filter((told) => told !== 'honoured').length;
  }

  async #remove(key: string, abortSignal: AbortSignal): Promise<void> {
    await this.#client.send(new DeleteObjectCommand({ Bucket: this.#bucket, Key: key }), { abortSignal });
    this.#made.delete(key);
  }
}

/** Of a write where something lies already. */
async function supportOf(write: Promise<unknown>): Promise<ConditionSupport> {
  try {
    await write;
    return 'ignored';
  } catch (error) {
    if (isTaken(error)) return 'honoured';
    if (isConditionUnknown(error)) return 'refused';
    throw error;
  }
}
