/**
 * Checks the parties in NIGHTLY_PARTIES before a nightly run, so that a mistyped id is
 * reported before the run and not only in its verdict.
 */
import { findNear } from '../errors/did-you-mean.ts';
import { formatCount } from '../format/format.js';
import { isHexId } from '../ledger/ids.ts';
import { findUnlistedParties } from '../lists/store/list-state.ts';
import type { App } from './app.ts';

/**
 * How many parties are looked up. If more are unknown, the mirror has probably not read
 * the list of parties yet, so the ids are probably right.
 */
const LOOK_UPS_MAX = 5;
const SHOWN_CHARACTERS_MAX = 80;
/**
 * How many characters at the start of a hexadecimal id are assumed to be right when a
 * similar id is searched for.
 */
const BEGINNING_CHARACTERS = 8;

type Parts = Pick<App, 'jobs' | 'warehouse'>;

/**
 * Looks up, at the source, the configured parties that the mirror's list does not
 * contain. Ids that are not hexadecimal come first, because on most networks every id is
 * hexadecimal.
 * @param signal also limits how long the source may take
 * @returns what is wrong, as a sentence; undefined if nothing was found
 */
export async function describeWrongParties(
  { jobs, warehouse }: Parts,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { nightlyParties, stages } = jobs;
  if (nightlyParties.kind !== 'list') return undefined;
  const unknown = await findUnlistedParties(warehouse.db, nightlyParties.ids);
  const inTurn = unknown.toSorted(
    (a, b) => Number(isHexId(a)) - Number(isHexId(b)),
  );
  const wrong: string[] = [];
  for (const id of inTurn.slice(0, LOOK_UPS_MAX))
    if (!(await stages.isListed(id, signal))) wrong.push(id);
  if (wrong.length === 0) return undefined;
  const named = await Promise.all(wrong.map((id) => nameWrong(id, stages)));
  const left = unknown.length - LOOK_UPS_MAX;
  const more =
    left > 0 ? ` (${formatCount(left)} more were not looked up)` : '';
  return (
    `NIGHTLY_PARTIES: the source does not list ${named.join(', ')}${more}; correct ` +
    'NIGHTLY_PARTIES, or the nightly run ends incomplete'
  );
}

/**
 * Describes an id that the source does not list, with the listed id that is probably
 * meant.
 */
async function nameWrong(
  id: string,
  stages: Parts['jobs']['stages'],
): Promise<string> {
  const shown = JSON.stringify(id.slice(0, SHOWN_CHARACTERS_MAX));
  const beginning = `${id.slice(0, BEGINNING_CHARACTERS)}…`;
  const similar = isHexId(id) ? await stages.listedParties(beginning) : [];
  const meant = findNear(id, similar);
  return meant === undefined ? shown : `${shown} (did you mean ${meant}?)`;
}
