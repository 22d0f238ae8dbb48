/**
 * Reads a party's mirrored ledger back from the published objects, as one CSV. A segment
 * that lies whole in what is asked is passed on as it is; only where a border or an asset
 * cuts one, or the columns of its release are not those of the others, are its rows
 * looked at. Segments outside the range are never opened.
 */
import { PermanentError } from '../../errors/errors.ts';
import {
  BEGINNING,
  formatInstant,
  type Micros,
  SECOND_MICROS,
} from '../../time/time.ts';
import type { Coverage } from '../../catalog/coverage-rows.ts';
import type { CoverageReader } from '../store/export-repository.ts';
import { overlaps, subtract } from '../../ledger/ranges.ts';
import { RowFilter } from '../../ledger/row-filter.ts';
import { commonColumns, withColumns } from '../../ledger/common-columns.ts';
import { layoutOf } from '../../ledger/header.ts';
import { compressionOf, plainStream } from '../../ledger/object-keys.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import type { ObjectStore } from '../../storage/object-store.ts';
import type { LedgerQuery } from '../../ledger/ledger-range.ts';

const LINE_FEED = 0x0a;
const END_OF_TIME: Micros = 2n ** 62n;
/** What release 0.71.4 begins an answer without entries with. */
const EMPTY_HEADER =
  'vega_time,quantity,transfer_type,asset_id,account_from_market_id,account_from_party_id,account_from_account_type,' +
  'account_to_market_id,account_to_party_id,account_to_account_type,account_from_balance,account_to_balance';

interface ReaderDeps {
  readonly exports: CoverageReader;
  readonly objects: Pick<ObjectStore, 'read'>;
}

/**
 * The plain CSV of a party's mirrored ledger: one header line, then the source's lines
 * unchanged, those outside the question left out. Ending the iteration early, or
 * aborting, releases everything.
 * @throws PermanentError `LEDGER_NOT_MIRRORED` where what is asked for was never
 *   exported, or misses a range: an empty answer would read as "no entries"
 */
export async function* readLedger(
  { exports, objects }: ReaderDeps,
  question: LedgerQuery,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const { partyId, assetId, isProofNeeded } = question;
  const coverage = await exports.coverage({ partyId, assetId });
  const isProof = ({ open, isFaulty, assetId: of }: Coverage) =>
    !open && isFaulty !== true && (of === undefined || of === assetId);
  refuseHoles(
    question,
    isProofNeeded === true ? coverage.filter(isProof) : coverage,
  );
  const segments = segmentsWithin(coverage, question);
  const headers = segments.map((segment) => segment.columns);
  const columns =
    segments.length === 0 ? EMPTY_HEADER.split(',') : commonColumns(headers);
  // Sent with the first rows: until they are read, a failure can still be told by the
  // status.
  let header = Buffer.from(`${columns.join(',')}\n`);
  for (const segment of segments) {
    const stored = await objects.read(segment.objectKey, signal);
    const plain = plainStream(stored, compressionOf(segment.objectKey));
    try {
      const chunks = withoutHeader(plain as AsyncIterable<Buffer>);
      const rows = liesWithin(segment, question)
        ? chunks
        : keptRows(chunks, segment, question);
      const isAlike = segment.columns.join() === columns.join();
      for await (const chunk of isAlike
        ? rows
        : withColumns(rows, segment.columns, columns)) {
        yield header.length > 0 ? Buffer.concat([header, chunk]) : chunk;
        header = Buffer.alloc(0);
      }
    } finally {
      plain.destroy();
      stored.destroy();
    }
  }
  if (header.length > 0) yield header;
}

/**
 * An empty answer says "no entries", so what is not known must not look like one. Unless
 * proof is needed, the end is not checked: a mirror knows no more than up to its last
 * run, as the service knows no more than its head.
 */
function refuseHoles(
  question: LedgerQuery,
  coverage: readonly Coverage[],
): void {
  const { from = BEGINNING, to, isProofNeeded } = question;
  if (coverage.length === 0)
    throw notMirrored(question, 'it was never exported');
  const named = new Set(coverage.flatMap(({ assetId }) => assetId ?? []));
  for (const asset of named.size === 0 ? [undefined] : named) {
    // What is known of every asset is known of each.
    const known = coverage.filter(
      ({ assetId }) => assetId === undefined || assetId === asset,
    );
    for (const hole of subtract({ from, to: to ?? END_OF_TIME }, known)) {
      const isEnd = known.every((range) => range.to <= hole.from);
      const isAsked =
        hole.from === from || (isProofNeeded === true && to !== undefined);
      if (isEnd && !isAsked) continue;
      const start = formatInstant(hole.from);
      const missing = isEnd
        ? `from ${start} on`
        : `of ${start} to ${formatInstant(hole.to)}`;
      throw notMirrored(question, `nothing is known ${missing}`);
    }
  }
}

function notMirrored(question: LedgerQuery, state: string): PermanentError {
  return new PermanentError(
    `Cannot read the ledger of ${question.partyId}: ${state}; order an export of ` +
      'it, or ask for less',
    {
      code: 'LEDGER_NOT_MIRRORED',
      meta: { partyId: question.partyId, assetId: question.assetId },
    },
  );
}

type Segment = ReturnType<typeof segmentsWithin>[number];

function segmentsWithin(
  coverage: readonly Coverage[],
  { from = BEGINNING, to = END_OF_TIME }: LedgerQuery,
) {
  return coverage.flatMap(({ objectKey, content, ...range }) =>
    objectKey !== undefined &&
    content !== undefined &&
    overlaps(range, { from, to })
      ? [{ ...range, objectKey, columns: content.columns }]
      : [],
  );
}

function liesWithin(
  segment: Segment,
  { assetId, from, to }: LedgerQuery,
): boolean {
  const isInTime =
    (from ?? BEGINNING) <= segment.from &&
    (to === undefined || segment.to <= to);
  return isInTime && (assetId === undefined || segment.assetId === assetId);
}

async function* withoutHeader(
  chunks: AsyncIterable<Buffer>,
): AsyncGenerator<Buffer> {
  let isHeader = true;
  for await (const chunk of chunks) {
    // Column names are plain words: the first line end is the header's.
    const start = isHeader ? chunk.indexOf(LINE_FEED) + 1 : 0;
    if (isHeader && start === 0) continue;
    isHeader = false;
    if (start < chunk.length) yield chunk.subarray(start);
  }
}

async function* keptRows(
  chunks: AsyncIterable<Buffer>,
  segment: Segment,
  { partyId, assetId, from, to }: LedgerQuery,
): AsyncGenerator<Buffer> {
  const filter = new RowFilter(
    { partyId, assetId },
    layoutOf(segment.columns),
    false,
  );
  // Borders are whole seconds, which a double holds exactly.
  const fromSecond =
    from === undefined ? -Infinity : Number(from / SECOND_MICROS);
  const toSecond = to === undefined ? Infinity : Number(to / SECOND_MICROS);
  const isKept = (buffer: Buffer, start: number, end: number): boolean =>
    filter.check(buffer, start, end) === 'ok' &&
    filter.time.second >= fromSecond &&
    filter.time.second < toSecond;
  const rows: Buffer[] = [];
  const splitter = new RowSplitter((buffer, start, end, next) => {
    if (isKept(buffer, start, end)) rows.push(buffer.subarray(start, next));
  });
  for await (const chunk of chunks) {
    splitter.push(chunk);
    if (rows.length > 0) yield Buffer.concat(rows.splice(0));
  }
}
