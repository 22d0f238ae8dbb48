/**
 * Whether a source leaves the line end of its last line out. A last line without one may have been cut, in whatever form
 * and framing it came, for the source itself may cut its text. An answer that has no entries shows it: the same header
 * line to its last byte, and no line end behind it.
 */
import { DAY_MICROS, floorSecond, type Micros } from '../../core/time.ts';
import type { ExportAnswer, WindowRequest } from '../ports.ts';
import type { SourceProfile } from '../store/source-profile.ts';

/** @returns a range in the source's future, in which no party has entries */
export function emptyRange(
  now: Micros,
  { boundsDemanded }: SourceProfile,
): Pick<WindowRequest, 'from' | 'to'> {
  const from = floorSecond(now) + DAY_MICROS;
  return boundsDemanded === true ? { from, to: from + DAY_MICROS } : { from };
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
