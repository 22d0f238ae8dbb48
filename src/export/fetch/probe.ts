/** Requests that only tell something of the source itself. */
import { DAY_MICROS, floorSecond, SECOND_MICROS } from '../../core/time.ts';
import { readHeader } from '../../ledger/header.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import type { ExportAnswer, ExportScope, WindowRequest } from '../ports.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import { RowFilter } from '../read/row-filter.ts';
import { secondOf } from '../plan/ranges.ts';
import type { Target } from '../plan/remaining.ts';

/** The entry's second, and what an entry's own time may lie behind the one that is exported. */
const PROBE_MICROS = 3n * SECOND_MICROS;

export type Probe = WindowRequest & { readonly from: bigint };

/**
 * Whether the source applies a start and an end together: asked for a few seconds around an entry that
 * is known to have left a party. The releases that get it wrong send none that left, and all that came.
 * @returns undefined where no entry is known to ask for
 */
export function probeRequest({ known }: SourceProfile): Probe | undefined {
  if (known === undefined) return undefined;
  const { partyId, listedAs, assetId, second } = known;
  return { partyId, listedAs, assetId, from: second, to: second + PROBE_MICROS };
}

/** Reads no more of the answer than it takes to tell. Whatever breaks it off says nothing, and is thrown. */
export async function readProbe(
  answer: ExportAnswer,
  question: Probe & Pick<ExportScope, 'hasOwnIds'>,
): Promise<'right' | 'broken'> {
  const known = secondOf(question.from);
  const end = secondOf(question.from + PROBE_MICROS);
  let filter: RowFilter | undefined;
  let found: 'right' | 'broken' | undefined;
  const splitter = new RowSplitter((buffer, start, stop) => {
    if (filter === undefined) {
      filter = new RowFilter(question, readHeader(buffer.subarray(start, stop)));
      return;
    }
    const finding = filter.check(buffer, start, stop);
    const { second } = filter.time;
    if (finding === 'ok' && filter.leaves && second === known) found ??= 'right';
    else if ((finding === 'ok' || finding === 'asset') && (second < known - 2 || second > end))
      found ??= 'broken';
  });
  for await (const chunk of answer.chunks) {
    splitter.push(chunk);
    if (found !== undefined) return found;
  }
  // A last row may lack its line end. Cut or not, its time says enough.
  splitter.push(Buffer.from('\n'));
  return found ?? 'broken';
}

/**
 * Whether a source leaves the line end of its last line out. A last line without one may have been cut, in whatever form
 * and framing it came, for the source itself may cut its text. An answer that has no entries shows it: the same header
 * line to its last byte, and no line end behind it.
 * @returns a range in the source's future, in which no party has entries
 */
export function emptyRange({ now, profile }: Target): Pick<WindowRequest, 'from' | 'to'> {
  const from = floorSecond(now) + DAY_MICROS;
  return profile.boundsDemanded === true ? { from, to: from + DAY_MICROS } : { from };
}

/** @param header of the answer in doubt, without its line end */
export async function isHeaderAlone(answer: ExportAnswer, header: string): Promise<boolean> {
  let text = '';
  for await (const chunk of answer.chunks) {
    text += chunk.toString('latin1');
    if (text.length > header.length) return false;
  }
  return text === header;
}
