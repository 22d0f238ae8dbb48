/**
 * What a party's cursor gives away: when the party was first seen, and its id. The cursor is documented
 * as opaque, so this is a second look at the order where it can be read, never the order itself.
 */
import { parseInstant, type Micros } from '../core/time.ts';

export interface PartyCursor {
  readonly id: string;
  readonly time: Micros;
}

/** A JSON object begins so in base64. */
const BEGINNING = 'eyJ';
const TIME_FIELD = '"VegaTime":"';
const ID_FIELD = '"ID":"';

/** @returns undefined where the cursor is of another kind, or has no time (`network`) */
export function readPartyCursor(cursor: string): PartyCursor | undefined {
  const text = decoded(cursor);
  if (text === undefined) return undefined;
  const id = textField(text, ID_FIELD);
  const timeText = textField(text, TIME_FIELD);
  if (id === undefined || timeText === undefined) return undefined;
  const time = parseInstant(timeText);
  return time === undefined ? undefined : { id, time };
}

/** One character a byte; several times faster than by way of a Buffer, where it does not throw. */
function decoded(base64: string): string | undefined {
  if (!base64.startsWith(BEGINNING)) return undefined;
  try {
    return atob(base64);
  } catch {
    return undefined;
  }
}

function textField(text: string, opening: string): string | undefined {
  const at = text.indexOf(opening);
  if (at === -1) return undefined;
  const from = at + opening.length;
  const to = text.indexOf('"', from);
  return to === -1 ? undefined : text.slice(from, to);
}
