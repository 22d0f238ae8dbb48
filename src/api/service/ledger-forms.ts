/**
 * The two forms of an export on the wire: the CSV as it is, or the result/error messages of the
 * interface document, one JSON message a line. A failure after the first byte can no longer change the
 * status; it ends the stream as the service ends it, with the error in the place of the next bytes.
 */
import { weightOf } from '../http/compression.ts';
import type { StatusBody } from '../http/status-error.ts';

export type LedgerForm = 'text/csv' | 'application/json';

/** Bytes of CSV in one message: a multiple of three, so that only the last carries base64 padding. */
const MESSAGE_BYTES_MAX = 768 * 1024;

/** Messages only for those who name JSON and not CSV, or prefer it; anything else is the service's form. */
export function ledgerForm(accept: string | undefined): LedgerForm {
  const prefersJson = weightOf(accept, 'application/json') > weightOf(accept, 'text/csv');
  return prefersJson ? 'application/json' : 'text/csv';
}

/**
 * @param describe turns what went wrong into the error that the client is told
 * @returns the body; it ends normally also where `chunks` failed
 */
export async function* ledgerBody(
  form: LedgerForm,
  chunks: AsyncIterable<Buffer>,
  describe: (error: unknown) => StatusBody,
): AsyncGenerator<Buffer> {
  let isFirst = true;
  try {
    for await (const chunk of chunks) {
      if (form === 'text/csv') {
        yield chunk;
        continue;
      }
      for (let start = 0; start < chunk.length; start += MESSAGE_BYTES_MAX) {
        yield message(chunk.subarray(start, start + MESSAGE_BYTES_MAX), isFirst);
        isFirst = false;
      }
    }
  } catch (error) {
    yield Buffer.from(JSON.stringify({ error: describe(error) }) + (form === 'text/csv' ? '' : '\n'));
  }
}

/** The interface wants `extensions` set in the first message; the mirror has none to tell. */
function message(data: Buffer, isFirst: boolean): Buffer {
  const extensions = isFirst ? ',"extensions":[]' : '';
  return Buffer.from(
    `{"result":{"contentType":"text/csv","data":"${data.toString('base64')}"${extensions}}}\n`,
    'latin1',
  );
}
