/**
 * Describes in one line how an object store behaves and what that means for the mirror.
 */
import type {
  ConditionSupport,
  StoreCapabilities,
} from '../storage/object-store.ts';

/** The line that `status` shows if lake commits are decided in the database. */
export const LAKE_DECIDED_IN_DATABASE =
  'Commits of the lake are decided in the database: this object store would let ' +
  'two writers put one (docs/objects.md).';

const WORDS: Readonly<Record<ConditionSupport, string>> = {
  honoured: 'are written once',
  ignored: 'are overwritten by a second writer (If-None-Match is ignored)',
  refused: 'are overwritten by a second writer (If-None-Match is refused)',
};

export function describeStore(
  url: string,
  { put, multipart, hasOneWinner, weaknesses = [] }: StoreCapabilities,
): string {
  const found = [
    'write, range read, list, delete and multipart upload work',
    ...weaknesses,
  ];
  const works = `${url}: ${found.join('; ')}`;
  if (put === 'honoured' && multipart === 'honoured' && hasOneWinner)
    return `${works}; objects are written once, even by concurrent writers`;
  const objects =
    put === multipart
      ? `objects ${WORDS[put]}`
      : `small objects ${WORDS[put]}, objects above 16 MiB ${WORDS[multipart]}`;
  const race = hasOneWinner
    ? ''
    : ', and of several writers at once more than one is told that it wrote';
  const lake =
    put === 'honoured' && hasOneWinner
      ? ''
      : '; commits of the lake are decided in the database';
  return (
    `${works}; ${objects}${race}: safe while one mirror has this prefix, whose ` +
    `leases keep it to one writer${lake} (docs/objects.md)`
  );
}
