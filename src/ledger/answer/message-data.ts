/**
 * The payload of `result` messages. The interface document does not say how `data` is encoded: proto
 * JSON makes it base64, others send the text itself. The first payload decides, by its content.
 */
import { isUtf8 } from 'node:buffer';
import { notUnderstood } from './error-body.ts';

export type DataEncoding = 'base64' | 'plain';

/** How much of a payload is judged. */
const DECIDING_CHARS = 4096;
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
  if (!isBase64(sample)) return 'plain';
  return isText(Buffer.from(sample, 'base64')) ? 'base64' : 'plain';
}

/** Node skips what is not base64. */
function isBase64(chars: string): boolean {
  return BASE64.test(chars) && chars.replace(/=+$/, '').length % 4 !== 1;
}

function isText(bytes: Buffer): boolean {
  if (bytes.some((byte) => byte < 0x20 && byte !== 0x09 && byte !== 0x0a && byte !== 0x0d)) return false;
  if (isUtf8(bytes)) return true;
  const cuts = bytes.length < CUT_CHARACTER_BYTES ? [] : [1, 2, 3];
  return cuts.some((cut) => isUtf8(bytes.subarray(0, bytes.length - cut)));
}

/**
 * Decodes one message's base64, standard or url-safe, padded or not.
 * @param offset of the message in the stream, for the error
 * @throws RetryableError `ANSWER_NOT_UNDERSTOOD` where a character is none of base64's
 */
export function decodeBase64(data: string, offset: number): Buffer {
  const chars = data.replaceAll(/\s/g, '');
  if (isBase64(chars)) return Buffer.from(chars, 'base64');
  const state = `the data of the message at byte ${offset} is not base64 as before`;
  throw notUnderstood(state, { byteOffset: offset });
}

/** @throws RetryableError `ANSWER_NOT_UNDERSTOOD` where half a character would be lost in UTF-8 */
export function encodePlain(data: string, offset: number): Buffer {
  if (data.isWellFormed()) return Buffer.from(data, 'utf8');
  const state = `the data of the message at byte ${offset} holds half a character`;
  throw notUnderstood(state, { byteOffset: offset });
}
