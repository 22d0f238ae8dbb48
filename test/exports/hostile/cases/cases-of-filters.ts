/**
 * Filters that the source ignores or bends: rows of other times, assets and parties that
 * nobody asked for.
 */
import { DAY, HOUR, SECOND, type Entry } from '../ledger.ts';
import {
  csvFor,
  declare,
  honestAnswer,
  NO_LIE,
  PARTLY,
  select,
  SUSPICIOUS,
  telling,
  WHOLE,
  type ExportRequest,
  type HostileCase,
  type Phase,
} from './case.ts';
import { THIRTEEN, writeCsv, writeHeader, writeRow } from '../layout.ts';
import { refusal, reply } from '../reply.ts';

const rows = (
  entries: readonly Entry[],
  request: ExportRequest,
): ReturnType<typeof reply> =>
  reply(writeCsv(THIRTEEN, entries, request.party));

/** The request as a source understands it that bends its bounds. */
const bounded =
  (bend: (request: ExportRequest) => ExportRequest): Phase['answer'] =>
  (request, truth) =>
    rows(select(bend(request), truth), request);

function withoutBounds(request: ExportRequest): ExportRequest {
  return withoutStart(withoutEnd(request));
}

function withoutStart(request: ExportRequest): ExportRequest {
  const { from: _, ...rest } = request;
  return rest;
}

function withoutEnd(request: ExportRequest): ExportRequest {
  const { to: _, ...rest } = request;
  return rest;
}

function withoutAsset(request: ExportRequest): ExportRequest {
  const { asset: _, ...rest } = request;
  return rest;
}

const floor = (time: bigint | undefined, unit: bigint): bigint | undefined =>
  time === undefined ? undefined : (time / unit) * unit;
const wider = (request: ExportRequest, by: bigint): ExportRequest => ({
  ...request,
  ...(request.from === undefined ? {} : { from: request.from - by }),
  ...(request.to === undefined ? {} : { to: request.to + by }),
});

/**
 * Incoming rows ignore every filter; with both bounds no outgoing row comes at all; an
 * end alone breaks the source.
 */
const brokenRelease: Phase['answer'] = (request, truth) => {
  if (request.from === undefined && request.to !== undefined)
    return reply([], { protocol: 'none', framing: 'close' });
  const isIncoming = (entry: Entry): boolean =>
    entry.to.party === request.party;
  const outgoing =
    request.to === undefined
      ? select(request, truth).filter((entry) => !isIncoming(entry))
      : [];
  return rows([...truth.filter(isIncoming), ...outgoing], request);
};

/** Rows of others, and of other times, between the true ones. */
const padded =
  (count: number): Phase['answer'] =>
  (request, truth) => {
    const chosen = select(request, truth);
    const pads = chosen.flatMap((entry) =>
      Array.from({ length: count }, (_, at) => {
        const time = outside(request, at);
        return time === undefined
          ? ''
          : writeRow(THIRTEEN, { ...entry, time }, request.party);
      }),
    );
    const own = chosen.map((entry) => writeRow(THIRTEEN, entry, request.party));
    return reply([
      writeHeader(THIRTEEN),
      ...own.flatMap((row, at) => [
        row,
        ...pads.slice(at * count, (at + 1) * count),
      ]),
    ]);
  };

/**
 * An instant that was not asked for; without bounds there is none, and the rows are not
 * padded.
 */
function outside(request: ExportRequest, at: number): bigint | undefined {
  const away = HOUR + BigInt(at) * SECOND;
  if (request.from !== undefined && request.from > DAY)
    return request.from - away;
  return request.to === undefined ? undefined : request.to + away;
}

export const CASES_OF_FILTERS: readonly HostileCase[] = [
  declare(
    'dates-ignored',
    'every answer has all rows of all times',
    bounded(withoutBounds),
    WHOLE,
  ),
  declare(
    'asset-ignored',
    'every answer has all assets',
    bounded(withoutAsset),
    WHOLE,
  ),
  declare(
    'all-filters-ignored',
    'every answer is the same',
    bounded((request) => withoutAsset(withoutBounds(request))),
    WHOLE,
  ),
  declare(
    'end-inclusive',
    'rows of the last instant come, too',
    (request, truth) =>
      rows(
        select(
          request.to === undefined
            ? request
            : { ...request, to: request.to + 1n },
          truth,
        ),
        request,
      ),
    WHOLE,
  ),
  declare(
    'bounds-by-whole-days',
    'bounds are widened to whole days',
    bounded((request) => wider(request, DAY)),
    WHOLE,
  ),
  declare(
    'bounds-by-whole-seconds',
    'both bounds are cut to whole seconds',
    (request, truth) => {
      const from = floor(request.from, SECOND);
      const to = floor(request.to, SECOND);
      return rows(
        select(
          {
            ...withoutBounds(request),
            ...(from === undefined ? {} : { from }),
            ...(to === undefined ? {} : { to }),
          },
          truth,
        ),
        request,
      );
    },
    WHOLE,
  ),
  declare(
    'start-ignored',
    'only the end is honoured',
    bounded(withoutStart),
    WHOLE,
  ),
  declare(
    'end-ignored',
    'only the start is honoured',
    bounded(withoutEnd),
    WHOLE,
  ),
  declare(
    'release-that-mixes-filters',
    'incoming rows ignore all filters, two bounds hide outgoing rows, an end alone is not answered',
    brokenRelease,
    { ...NO_LIE, maxRequests: 60 },
  ),
  declare(
    'end-alone-breaks-the-source',
    'a request with an end and no start ends without an answer',
    (request, truth, now) =>
      request.from === undefined && request.to !== undefined
        ? reply([], { protocol: 'none', framing: 'close' })
        : honestAnswer(request, truth, now),
    WHOLE,
  ),
  declare(
    'bounds-refused',
    'any request with a bound is a 400',
    (request, truth, now) =>
      request.from === undefined && request.to === undefined
        ? honestAnswer(request, truth, now)
        : refusal(400, 'dateRange is not served'),
    NO_LIE,
  ),
  declare(
    'bounds-demanded',
    'a request without both bounds is a 400',
    (request, truth, now) =>
      request.from === undefined || request.to === undefined
        ? refusal(400, 'dateRange is missing')
        : honestAnswer(request, truth, now),
    WHOLE,
    { apart: 'bounds' },
  ),
  declare(
    'padded',
    'three rows of before the range behind each true one',
    padded(3),
    WHOLE,
  ),
  declare(
    'padded-heavily',
    '200 rows of before the range behind each true one',
    padded(200),
    WHOLE,
  ),
  declare(
    'another-party-instead',
    'the answer is another party’s',
    (request, truth) => {
      const other = 'dd'.repeat(32);
      const turn = (entry: Entry): Entry => ({
        ...entry,
        from: { ...entry.from, party: other },
        to: { ...entry.to, party: 'network' },
      });
      return rows(select(request, truth).map(turn), {
        ...request,
        party: other,
      });
    },
    telling({ ...PARTLY, published: 'nothing' }, 'rows of other parties'),
  ),
  declare(
    'another-party-once',
    'the first answer is another party’s, the next ones are right',
    (request, truth, now) =>
      request.n === 0
        ? rows(
            select(request, truth).map((entry) => ({
              ...entry,
              from: { ...entry.from, party: 'dd'.repeat(32) },
              to: { ...entry.to, party: 'network' },
            })),
            request,
          )
        : honestAnswer(request, truth, now),
    {
      ...SUSPICIOUS,
      verdicts: ['suspicious', 'complete', 'incomplete', 'failed'],
    },
  ),
  declare(
    'misspelt-parameters-ignored',
    'parameters of other names are ignored: nothing is filtered',
    (request, truth) =>
      reply(csvFor(withoutBounds(withoutAsset(request)), truth)),
    WHOLE,
  ),
];
