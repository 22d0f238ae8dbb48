/**
 * The payload of `result` messages. The interface document does not say how `data` is encoded: proto
 * JSON makes it base64, others send the text itself. The first payload decides, by its content.
 */
import { isUtf8 } from 'node:buffer';
import { RetryableError } from '../../core/errors.ts';

export type DataEncoding = 'base64' | 'plain';

/** Multiples of four characters: whole quanta. A piece is what is handed on; a slice a string that is cheap to make. */
const PIECE_CHARS = 256 * 1024;
const SLICE_CHARS = 32 * 1024;
/** How much of a payload is judged. */
export const DECIDING_CHARS = 4096;
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;
/** In a shorter sample no character is cut at its end. */
const CUT_CHARACTER_BYTES = 16;

/**
 * Base64 is what has only its letters and means text: `vega_time` is made of them too, but decodes to
 * no text, and a header with a comma is none.
 * @returns undefined where there is nothing to judge by
 */
export function dataEncoding(data: string): DataEncoding | undefined {
  if (data === '') return undefined;
  const sample = data.slice(0, DECIDING_CHARS).replaceAll(/\s/g, '');
  if (!BASE64.test(sample) || sample.replace(/=+$/, '').length % 4 === 1) return 'plain';
  return isText(Buffer.from(sample, 'base64')) ? 'base64' : 'plain';
}

function isText(bytes: Buffer): boolean {
  if (bytes.some((byte) => byte < 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d)) return false;
  if (isUtf8(bytes)) return true;
  const cuts = bytes.length < CUT_CHARACTER_BYTES ? [] : [1, 2, 3];
  return cuts.some((cut) => isUtf8(bytes.subarray(0, bytes.length - cut)));
}

/**
 * Decodes one message's base64, standard or url-safe, padded or not.
 * @param chars the characters as bytes
 * @param offset of the message in the stream, for the error
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` where a character is none of base64's
 */
export function* decodeBase64(chars: Buffer, offset: number): Generator<Buffer, void, undefined> {
  for (let start = 0; start < chars.length; start += PIECE_CHARS) {
    const piece = chars.subarray(start, start + PIECE_CHARS);
    const bytes = decodedBytes(piece, start + PIECE_CHARS >= chars.length);
    // Node skips what is not base64; the length betrays it.
    if (bytes === -1) throw notBase64(offset);
    const decoded = Buffer.allocUnsafe(bytes);
    let written = 0;
    for (let at = 0; at < piece.length; at += SLICE_CHARS) {
      const slice = piece.toString('latin1', at, Math.min(at + SLICE_CHARS, piece.length));
      written += decoded.write(slice, written, 'base64');
    }
    if (written !== bytes) throw notBase64(offset);
    yield decoded;
  }
}

function notBase64(offset: number): RetryableError {
  return new RetryableError(
    `Cannot read the answer: the data of the message at byte ${offset} is not base64 as before`,
    { code: 'ANSWER_NOT_UNDERSTOOD', meta: { byteOffset: offset } },
  );
}

function decodedBytes(chars: Buffer, isLast: boolean): number {
  const padding = isLast ? paddingOf(chars) : 0;
  const length = chars.length - padding;
  return length % 4 === 1 ? -1 : Math.floor((length * 3) / 4);
}

function paddingOf(chars: Buffer): number {
  if (chars.at(-1) !== 0x3d) return 0;
  return chars.at(-2) === 0x3d ? 2 : 1;
}

/** @throws RetryableError `ANSWER_NOT_UNDERSTOOD` where half a character would be lost in UTF-8 */
export function encodePlain(data: string, offset: number): Buffer {
  if (!data.isWellFormed()) {
    throw new RetryableError(
      `Cannot read the answer: the data of the message at byte ${offset} holds half a character`,
      { code: 'ANSWER_NOT_UNDERSTOOD', meta: { byteOffset: offset } },
    );
  }
  return Buffer.from(data, 'utf8');
}
