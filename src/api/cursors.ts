/**
 * Cursors: a position in a list, in text that only this mirror can have made. They carry what the
 * next page starts from, so that a page costs the same at any depth and no process keeps anything.
 */
import { hash, hkdfSync, timingSafeEqual } from 'node:crypto';
import type { CheckpointRow } from './ports.ts';

/** Where a party's cursor stands; `null` for the network's own party, which has no place. */
export interface PartyPosition {
  readonly epoch: number;
  readonly pos: bigint | null;
}

export interface CheckpointPosition extends CheckpointRow {
  readonly epoch: number;
}

/** One list's cursors. */
export interface CursorForm<Position> {
  write(position: Position): string;
  /** @returns undefined where this mirror has not made `text` for this list */
  read(text: string): Position | undefined;
}

export interface Cursors {
  readonly parties: CursorForm<PartyPosition>;
  readonly checkpoints: CursorForm<CheckpointPosition>;
}

const CURSOR_CHARACTERS_MAX = 2_048;
/** 132 bits of the HMAC in base64url: too many to guess, short enough for a thousand rows a page. */
const SIGNATURE_CHARACTERS = 22;
const PARTY = /^p (\d+) (-?\d+|network)$/;
const CHECKPOINT = /^c (\d+) (\d+) (\d+) (\S*) (\S*)$/;

/** @param secret known to no client; who has it can forge positions, nothing else */
export function createCursors(secret: Buffer): Cursors {
  const sign = createSigner(Buffer.from(hkdfSync('sha256', secret, '', 'ledger-mirror cursors', 32)));
  const write = (plain: string): string => {
    const body = Buffer.from(plain, 'latin1').toString('base64url');
    return `${body}.${sign(body)}`;
  };
  const read = (text: string, form: RegExp): RegExpExecArray | null => {
    const dot = text.length <= CURSOR_CHARACTERS_MAX ? text.indexOf('.') : -1;
    const [body, signature] = [text.slice(0, dot), text.slice(dot + 1)];
    if (dot < 0 || !isSame(signature, sign(body))) return null;
    return form.exec(Buffer.from(body, 'base64url').toString('latin1'));
  };
  return {
    parties: {
      write: ({ epoch, pos }) => write(`p ${epoch} ${pos ?? 'network'}`),
      read: (text) => {
        const [, epoch, pos] = read(text, PARTY) ?? [];
        if (epoch === undefined || pos === undefined) return undefined;
        return { epoch: Number(epoch), pos: pos === 'network' ? null : BigInt(pos) };
      },
    },
    checkpoints: {
      write: ({ epoch, atBlock, copy, hash: state, blockHash }) =>
        write(`c ${epoch} ${atBlock} ${copy} ${encodeURIComponent(state)} ${encodeURIComponent(blockHash)}`),
      read: (text) => {
        const [, epoch, atBlock, copy, state, blockHash] = read(text, CHECKPOINT) ?? [];
        if (epoch === undefined || atBlock === undefined || copy === undefined) return undefined;
        if (state === undefined || blockHash === undefined) return undefined;
        return {
          epoch: Number(epoch),
          atBlock,
          copy: Number(copy),
          hash: decodeURIComponent(state),
          blockHash: decodeURIComponent(blockHash),
        };
      },
    },
  };
}

/**
 * HMAC-SHA256 of ASCII texts, from one-shot hashes: a page signs a thousand cursors, and createHmac
 * costs three times as much for each.
 */
function createSigner(key: Buffer): (text: string) => string {
  // 64 hex digits fill SHA-256's block and stay ASCII when padded.
  const digits = Buffer.from(key.toString('hex'), 'latin1');
  const inner = digits.map((byte) => byte ^ 0x36).toString();
  const outer = Buffer.concat([digits.map((byte) => byte ^ 0x5c), Buffer.alloc(32)]);
  return (text) => {
    outer.write(hash('sha256', inner + text, 'binary'), 64, 'latin1');
    return hash('sha256', outer, 'base64url').slice(0, SIGNATURE_CHARACTERS);
  };
}

function isSame(given: string, expected: string): boolean {
  const [left, right] = [Buffer.from(given), Buffer.from(expected)];
  return left.length === right.length && timingSafeEqual(left, right);
}
