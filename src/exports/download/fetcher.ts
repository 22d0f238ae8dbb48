/**
 * Requests to the source: a place within the export limit, the answer, and what is
 * remembered of it; and those that only tell something of the source itself.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import {
  errorCode,
  PermanentError,
  RetryableError,
} from '../../errors/errors.ts';
import { waitFor } from '../../concurrency/timeouts.ts';
import { DAY_MICROS, floorSecond, SECOND_MICROS } from '../../time/time.ts';
import { readHeader } from '../../ledger/header.ts';
import { RowSplitter } from '../../ledger/row-splitter.ts';
import { behindClock } from '../planning/answer-head.ts';
import { type PlannedRequest, planShrunk } from '../planning/next-window.ts';
import { secondOf } from '../../ledger/ranges.ts';
import { closedRange, type Target } from '../planning/remaining.ts';
import { sumBytes } from '../planning/time-histogram.ts';
import type { StreamSeen, WindowPlan } from '../planning/window-plan.ts';
import { type ExportContext, WAIT_MS, waitedTooLong } from '../request.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import type { ExportAnswer, WindowRequest } from '../ports.ts';
import { RowFilter } from '../../ledger/row-filter.ts';
import type { SourceProfile } from '../store/source-profile.ts';
import {
  type Outgrown,
  receive,
  type Received,
  type Receiving,
} from './receive-answer.ts';

/**
 * Failures of the source on the way to its first row: its query takes too long, or
 * breaks.
 */
const SILENCES: ReadonlySet<string> = new Set([
  'SOURCE_STALLED',
  'SOURCE_TIMEOUT',
  'SOURCE_BROKE',
  'SOURCE_STATUS',
]);
/** The part of a window that its continuation asks for again. */
const TAIL_PART = 16;
const TAIL_BYTES_MAX = 2 ** 20;
/**
 * Rows that nobody asked for may come up to twice the known ledger and four objects of
 * the largest size.
 */
const KNOWN_TIMES = 2;
const OUTSIDE_OBJECTS = 4;
/**
 * Small exports occupy the source for milliseconds; asked this often, so that no free
 * turn is lost.
 */
const TURN_STEPS = { stepMinMs: 10, stepMaxMs: 250 };
/** How often a fleet is asked whose nodes are behind. */
const BEHIND_ATTEMPTS_MAX = 5;
const PAUSE_MS = 1_000;
const PAUSE_MS_MAX = 60_000;

const NOTHING_SEEN: StreamSeen = {
  bytes: 0,
  stretches: [],
  sortedTo: undefined,
};

type OnProgress = (progress: Pick<Receiving, 'bytes' | 'rows'>) => void;

export class Fetcher {
  readonly #context: ExportContext;
  readonly #windows: WindowPlan;
  readonly #onProgress: OnProgress;
  requests = 0;
  /** By the header line of the answers in doubt. */
  readonly #leavesLineEndOut = new Map<string, boolean>();

  constructor(
    context: ExportContext,
    windows: WindowPlan,
    onProgress: OnProgress,
  ) {
    this.#context = context;
    this.#windows = windows;
    this.#onProgress = onProgress;
  }

  /**
   * @param fruitless requests in vain before this one: the longer it waits. The first two
   *   do not wait
   * @returns what came; where it broke off on the way, that is remembered and the error
   *   thrown
   */
  async ask(
    asked: PlannedRequest,
    fruitless: number,
  ): Promise<Received | Outgrown> {
    const {
      lease,
      signal,
      failpoint,
      checkLease,
      pauseMs = pauseAfter,
    } = this.#context;
    const ms = pauseMs(fruitless);
    if (ms > 0) await sleep(ms, undefined, { signal });
    const mayGoOn = this.#watch(asked);
    let receiving: Receiving | undefined;
    try {
      return await this.#atSource(async () => {
        await using answer = await this.#askCurrentNode(asked);
        await failpoint('asked');
        const received = await receive(
          answer,
          { ...asked, scope: lease.scope },
          {
            ...this.#context,
            tailBytesMax: Math.min(
              TAIL_BYTES_MAX,
              this.#windows.windowBytes / TAIL_PART,
            ),
            mayGoOn: (now) => {
              receiving = now;
              checkLease();
              this.#onProgress(now);
              return mayGoOn(now);
            },
            leavesLineEndOut: (header) => this.#askForHeader(asked, header),
          },
        );
        if (received.state === 'complete') await failpoint('spooled');
        return received;
      });
    } catch (error) {
      const seen = receiving?.seen();
      if (errorCode(error) === 'MESSAGE_TOO_LARGE')
        return this.#tooLarge(asked, seen ?? NOTHING_SEEN, error);
      if (seen === undefined) return await this.#silent(asked, error);
      this.#windows.recordBroken(seen);
      await this.keep();
      throw error;
    }
  }

  /**
   * Asks until a node answers that has come as far as the run's clock: the next one may
   * have.
   * @throws RetryableError `SOURCE_BEHIND` if none has
   */
  async #askCurrentNode({
    request,
    target: { closedTo },
  }: PlannedRequest): Promise<ExportAnswer> {
    const { lease, source, signal, pauseMs = pauseAfter } = this.#context;
    const clock = { ...this.#context.request.clock, closedTo };
    for (let attempt = 1; ; attempt += 1) {
      const answer = await source.ask({ ...lease.scope, ...request }, signal);
      const behind = behindClock(answer.head ?? {}, clock, request.to);
      if (behind === undefined) return answer;
      await answer[Symbol.asyncDispose]();
      if (attempt >= BEHIND_ATTEMPTS_MAX)
        throw sourceBehind(lease.scope.partyId, behind);
      await sleep(pauseMs(attempt), undefined, { signal });
      this.requests += 1;
    }
  }

  /** Whether the source applies a start and an end together. */
  probe(probe: Probe): Promise<'right' | 'broken'> {
    const { source, lease, signal } = this.#context;
    return this.#atSource(async () => {
      await using answer = await source.ask(probe, signal);
      return await readProbe(answer, {
        ...probe,
        hasOwnIds: lease.scope.hasOwnIds,
      });
    });
  }

  /** Stores what is known of the export's windows for the process that resumes it. */
  async keep(): Promise<void> {
    const { repository, lease } = this.#context;
    // A plan that cannot be kept costs bytes at most.
    await repository
      .savePlan(lease, this.#windows.toJson())
      .catch(() => undefined);
  }

  /**
   * Whether the source ends its answers without a line end: asked once, within the turn
   * of the answer in doubt.
   */
  async #askForHeader(
    { target }: PlannedRequest,
    header: string,
  ): Promise<boolean> {
    const known = this.#leavesLineEndOut.get(header);
    if (known !== undefined) return known;
    const { source, lease, signal } = this.#context;
    this.requests += 1;
    let isAlone = false;
    try {
      const request = { ...lease.scope, ...emptyRange(target) };
      await using answer = await source.ask(request, signal);
      isAlone = await isHeaderAlone(answer, header);
    } catch (error) {
      // A source that refuses such a range shows nothing.
      if (!(error instanceof PermanentError)) throw error;
    }
    this.#leavesLineEndOut.set(header, isAlone);
    return isAlone;
  }

  /** The source sent no row of the plan's range. */
  async #silent({ plan }: PlannedRequest, error: unknown): Promise<never> {
    const { scope } = this.#context.lease;
    const range = closedRange(plan);
    if (range === undefined || !SILENCES.has(errorCode(error))) throw error;
    const mayHelp = this.#windows.recordSilence(range);
    await this.keep();
    if (mayHelp) throw error;
    throw new PermanentError(
      `Cannot export party ${scope.partyId}: the source cannot answer; no row ` +
        'came of the whole range, nor of a half and a quarter of it',
      {
        code: 'SOURCE_CANNOT_ANSWER',
        meta: { ...scope, from: String(range.from), to: String(range.to) },
        cause: error,
      },
    );
  }

  /**
   * Cancels an answer of which more has come of what was asked for than one object may
   * hold, if the next request would be about less. What comes beside it, such as what is
   * known already, comes with every smaller request too, but not for ever: what is known
   * of the ledger may come again, and as much as a few objects hold that is not known.
   * @returns false to cancel; throws `SOURCE_OUTSIDE_RANGE` for an answer without end
   */
  #watch(asked: PlannedRequest): (receiving: Receiving) => boolean {
    const { scope } = this.#context.lease;
    const { streamBytesMax } = this.#windows;
    const knownBytes = asked.target.coverage.reduce(
      (sum, { content }) => sum + Number(content?.bytes ?? 0n),
      0,
    );
    const outsideBytesMax =
      KNOWN_TIMES * knownBytes + OUTSIDE_OBJECTS * streamBytesMax;
    let checkAtBytes = streamBytesMax;
    let mustRun = false;
    return (receiving) => {
      const { bytes } = receiving;
      if (bytes <= checkAtBytes) return true;
      const seen = receiving.seen();
      const roomBytes = streamBytesMax - sumBytes(seen.stretches);
      const outsideRoomBytes =
        outsideBytesMax - (bytes - sumBytes(seen.stretches));
      if (outsideRoomBytes < 0)
        throw new RetryableError(
          `Cannot export party ${scope.partyId}: ${bytes} bytes came, nearly all ` +
            'outside of the range that was asked for, with no end; ' +
            'look at what answers there, or export the party without --from and --to',
          {
            code: 'SOURCE_OUTSIDE_RANGE',
            meta: { ...scope, bytes, outsideBytesMax },
          },
        );
      if (!mustRun && roomBytes < 0) {
        if (this.#mayCancel(asked, receiving, seen)) return false;
        mustRun = true;
      }
      checkAtBytes = bytes + (mustRun ? outsideRoomBytes : roomBytes);
      return true;
    };
  }

  /**
   * Within the limit of exports at once; the export's own lease says that it still is.
   */
  async #atSource<Result>(work: () => Promise<Result>): Promise<Result> {
    const {
      repository,
      exportLimit,
      waitMs = WAIT_MS,
      lease,
      signal,
    } = this.#context;
    await waitFor(
      async () =>
        (await repository.enterSource(lease, exportLimit)) ? true : undefined,
      { waitMs, ...TURN_STEPS, signal },
      () => waitedTooLong('a turn within the export limit', waitMs),
    );
    try {
      this.requests += 1;
      return await work();
    } finally {
      await repository.leaveSource(lease).catch(() => undefined);
    }
  }

  /** A smaller range may come in smaller messages. */
  #tooLarge(asked: PlannedRequest, seen: StreamSeen, error: unknown): Outgrown {
    // A known entry will show whether an end can be sent.
    const mayBound = asked.target.profile.known !== undefined;
    if (planShrunk(asked, this.#windows, seen, mayBound) === undefined)
      throw error;
    return { state: 'outgrown', seen, traits: undefined };
  }

  /**
   * Only where smaller answers can be had: from a release that applies both bounds, or
   * may turn out to.
   */
  #mayCancel(
    asked: PlannedRequest,
    { traits }: Receiving,
    seen: StreamSeen,
  ): boolean {
    const { bounds, known } = asked.target.profile;
    if (traits === undefined || bounds === 'broken') return false;
    const mayBound = traits.layout.sides === 'from' || bounds === 'right';
    if (!mayBound && known === undefined && traits.leavingSecond === undefined)
      return false;
    return planShrunk(asked, this.#windows, seen, true)?.isAffordable === true;
  }
}

function sourceBehind(partyId: string, state: string): RetryableError {
  return new RetryableError(
    `Cannot export party ${partyId}: the source is behind (${state}); nothing is ` +
      'closed by it, and the next run asks again',
    { code: 'SOURCE_BEHIND', meta: { partyId } },
  );
}

function pauseAfter(fruitless: number): number {
  return fruitless < 2
    ? 0
    : Math.min(PAUSE_MS * 2 ** (fruitless - 2), PAUSE_MS_MAX);
}

/**
 * The entry's second, and what an entry's own time may lie behind the one that is
 * exported.
 */
const PROBE_MICROS = 3n * SECOND_MICROS;

export type Probe = WindowRequest & { readonly from: bigint };

/**
 * Whether the source applies a start and an end together: asked for a few seconds around
 * an entry that is known to have left a party. The releases that get it wrong send none
 * that left, and all that came.
 * @returns undefined if no entry is known to ask for
 */
export function probeRequest({ known }: SourceProfile): Probe | undefined {
  if (known === undefined) return undefined;
  const { partyId, listedAs, assetId, second } = known;
  return {
    partyId,
    listedAs,
    assetId,
    from: second,
    to: second + PROBE_MICROS,
  };
}

/**
 * Reads no more of the answer than it takes to tell. Whatever breaks it off says nothing,
 * and is thrown.
 */
async function readProbe(
  answer: ExportAnswer,
  question: Probe & Pick<ExportScope, 'hasOwnIds'>,
) {
  const known = secondOf(question.from);
  const end = secondOf(question.from + PROBE_MICROS);
  let filter: RowFilter | undefined;
  let found: 'right' | 'broken' | undefined;
  const splitter = new RowSplitter((buffer, start, stop) => {
    if (filter === undefined) {
      filter = new RowFilter(
        question,
        readHeader(buffer.subarray(start, stop)),
      );
      return;
    }
    const finding = filter.check(buffer, start, stop);
    const { second } = filter.time;
    if (finding === 'ok' && filter.leaves && second === known)
      found ??= 'right';
    else if (
      (finding === 'ok' || finding === 'asset') &&
      (second < known - 2 || second > end)
    )
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
 * Whether a source leaves the line end of its last line out. A last line without one may
 * have been cut, in whatever form and framing it came, for the source itself may cut its
 * text. An answer that has no entries shows it: the same header line to its last byte,
 * and no line end behind it.
 * @returns a range in the source's future, in which no party has entries
 */
function emptyRange({
  now,
  profile,
}: Target): Pick<WindowRequest, 'from' | 'to'> {
  const from = floorSecond(now) + DAY_MICROS;
  return profile.boundsDemanded === true
    ? { from, to: from + DAY_MICROS }
    : { from };
}

/** @param header of the answer in doubt, without its line end */
async function isHeaderAlone(
  answer: ExportAnswer,
  header: string,
): Promise<boolean> {
  let text = '';
  for await (const chunk of answer.chunks) {
    text += chunk.toString('latin1');
    if (text.length > header.length) return false;
  }
  return text === header;
}
