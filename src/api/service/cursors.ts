/**
 * Cursors: a position in a list, in text that only this mirror can have made. They carry what the
 * next page starts from, so that a page costs the same at any depth and no process keeps anything.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  timingSafeEqual,
} from 'node:crypto';
import { type CheckpointRow, POSITION_BYTES } from './store/read-store.ts';

/** Where a party's cursor stands; `null` for the network's own party, which has none. */
export interface PartyPosition {
  readonly epoch: number;
  readonly pos: bigint | null;
}

export interface CheckpointPosition extends CheckpointRow {
  readonly epoch: number;
}

/** One list's cursors. They need no escaping in a URL or in JSON. */
interface CursorForm<Position> {
  /** @returns undefined where this mirror has not made `text` for this list */
  read(text: string): Position | undefined;
}

export interface PartyCursors extends CursorForm<PartyPosition> {
  /** @param positions a page's worth at once, as `PartySlice` has them; the cursors are in the same order */
  ofPositions(epoch: number, positions: Buffer): readonly string[];
  ofNetwork(epoch: number): string;
}

export interface CheckpointCursors extends CursorForm<CheckpointPosition> {
  of(position: CheckpointPosition): string;
}

export interface Cursors {
  readonly parties: PartyCursors;
  readonly checkpoints: CheckpointCursors;
}

/** @param secret known to no client; who has it can forge positions, nothing else */
export function createCursors(secret: Buffer): Cursors {
  const key = (list: string): KeyObject =>
    createSecretKey(Buffer.from(hkdfSync('sha256', secret, '', `ledger-mirror cursors of ${list}`, 32)));
  return { parties: sealedParties(key('parties')), checkpoints: signedCheckpoints(key('checkpoints')) };
}

const BLOCK_BYTES = 16;
const SEALED = /^[0-9a-f]{32}$/;
/** What every sealed block begins with; together with the epoch, 64 bits that a forger must hit blindly. */
const MARK = { listed: 0x9d_1c_5e_07, network: 0x9d_1c_5e_08 } as const;

/**
 * A party's position fills one block of the cipher, mark included, so enciphering it both hides it and
 * proves where it comes from: any other block deciphers to noise without the mark. All blocks of a page
 * go through the cipher in one call, which a thousand signatures would take a hundred times as long for.
 */
function sealedParties(key: KeyObject): PartyCursors {
  const seal = (mark: number, epoch: number, positions: Buffer): readonly string[] => {
    const sealed = createCipheriv('aes-256-ecb', key, null)
      .setAutoPadding(false)
      .update(blocks(mark, epoch, positions))
      .toString('hex');
    const digits = 2 * BLOCK_BYTES;
    return Array.from({ length: sealed.length / digits }, (_, at) =>
      sealed.slice(at * digits, (at + 1) * digits),
    );
  };
  return {
    ofPositions: (epoch, positions) => seal(MARK.listed, epoch, positions),
    ofNetwork: (epoch) => seal(MARK.network, epoch, Buffer.alloc(POSITION_BYTES)).join(''),
    read: (text) => {
      if (!SEALED.test(text)) return undefined;
      const decipher = createDecipheriv('aes-256-ecb', key, null).setAutoPadding(false);
      const plain = decipher.update(Buffer.from(text, 'hex'));
      const mark = plain.readUInt32BE(0);
      if (mark !== MARK.listed && mark !== MARK.network) return undefined;
      return { epoch: plain.readUInt32BE(4), pos: mark === MARK.network ? null : plain.readBigInt64BE(8) };
    },
  };
}

/** One block for each position: mark, epoch, position. Moved by words of eight bytes, whose order inside stays. */
function blocks(mark: number, epoch: number, positions: Buffer): BigUint64Array {
  const head = Buffer.alloc(8);
  head.writeUInt32BE(mark, 0);
  head.writeUInt32BE(epoch, 4);
  const given = new BigUint64Array(Uint8Array.from(positions).buffer);
  const words = new BigUint64Array(2 * given.length).fill(new BigUint64Array(head.buffer)[0] ?? 0n);
  for (let at = 0; at < given.length; at += 1) words[2 * at + 1] = given[at] ?? 0n;
  return words;
}

const SIGNED_CHARACTERS_MAX = 4_096;
/** 132 bits of the HMAC. */
const SIGNATURE_CHARACTERS = 22;
const CHECKPOINT = /^(\d+) (\d+) (\d+) (\S*) (\S*)$/;

/** A checkpoint's position holds both its hashes, so it is sent as text with its HMAC. */
function signedCheckpoints(key: KeyObject): CheckpointCursors {
  const sign = (body: string): string =>
    createHmac('sha256', key).update(body).digest('base64url').slice(0, SIGNATURE_CHARACTERS);
  return {
    of: ({ epoch, atBlock, copy, hash, blockHash }) => {
      const texts = [hash, blockHash].map((text) => encodeURIComponent(text));
      const body = Buffer.from([epoch, atBlock, copy, ...texts].join(' ')).toString('base64url');
      return `${body}.${sign(body)}`;
    },
    read: (text) => {
      const dot = text.length <= SIGNED_CHARACTERS_MAX ? text.indexOf('.') : -1;
      const body = text.slice(0, Math.max(dot, 0));
      if (dot < 0 || !isSame(text.slice(dot + 1), sign(body))) return undefined;
      const [, epoch, atBlock, copy, hash, blockHash] =
        CHECKPOINT.exec(Buffer.from(body, 'base64url').toString()) ?? [];
      if (atBlock === undefined || hash === undefined || blockHash === undefined) return undefined;
      return {
        epoch: Number(epoch),
        atBlock,
        copy: Number(copy),
        hash: decodeURIComponent(hash),
        blockHash: decodeURIComponent(blockHash),
      };
    },
  };
}

function isSame(given: string, expected: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(expected)];
  return left.length === right.length && timingSafeEqual(left, right);
}
