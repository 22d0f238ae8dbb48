/**
 * Sends an export's requests to the source within the export limit, and records in the
 * window plan what the responses show. It also sends requests that only probe the
 * source's behaviour.
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
import { RowSplitter } from '../../ledger/csv-rows.ts';
import { behindClock } from '../planning/source-clock.ts';
import { type PlannedRequest, planShrunk } from '../planning/next-window.ts';
import { secondOf } from '../../ledger/ranges.ts';
import { closedRange, type Target } from '../planning/remaining.ts';
import { sumBytes } from '../planning/time-histogram.ts';
import type { StreamSeen, WindowPlan } from '../planning/window-plan.ts';
import {
  type ExportContext,
  WAIT_MS,
  waitedTooLong,
} from '../export-context.ts';
import type { ExportScope } from '../../ledger/export-scope.ts';
import type { ExportAnswer, WindowRequest } from '../ports.ts';
import { RowFilter } from '../../ledger/row-filter.ts';
import type { SourceProfile } from '../planning/profile.ts';
import {
  type Outgrown,
  receive,
  type Received,
  type Receiving,
} from './receive-answer.ts';

/**
 * Codes of failures before the first row: the source's query fails or takes too long.
 */
const SILENCES: ReadonlySet<string> = new Set([
  'SOURCE_STALLED',
  'SOURCE_TIMEOUT',
  'SOURCE_BROKE',
  'SOURCE_STATUS',
]);
/**
 * How much of a window its continuation may request again: a sixteenth of its bytes,
 * and at most `TAIL_BYTES_MAX`.
 */
const TAIL_PART = 16;
const TAIL_BYTES_MAX = 2 ** 20;
/**
 * Maximum size of the rows outside the request that a response may contain: twice the
 * known ledger, plus four objects of the maximum size.
 */
const KNOWN_TIMES = 2;
const OUTSIDE_OBJECTS = 4;
/**
 * How often to try to get a slot at the source. Small exports use a slot for only
 * milliseconds, and a free slot should not stay idle.
 */
const TURN_STEPS = { stepMinMs: 10, stepMaxMs: 250 };
/** Maximum number of responses from lagging nodes before the request fails. */
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
  /**
   * Whether the source omits the line break at the end of a response, keyed by the
   * header line of the response whose end was unproven.
   */
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
   * Sends a request and receives the response.
   * @param fruitless number of consecutive requests that have published nothing. From
   *   the second on, the pause before a request grows with this number
   * @returns the received response. If it breaks off, the window plan records the part
   *   that was received, and the error is thrown
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
   * Repeats a request until the responding node has reached the time of the run's clock.
   * Each attempt may reach a different node.
   * @throws RetryableError `SOURCE_BEHIND` if no responding node has reached that time
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

  /** Finds out whether the source correctly applies a start and an end together. */
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

  /** Stores the export's window plan for a process that resumes the export. */
  async keep(): Promise<void> {
    const { repository, lease } = this.#context;
    // Without a stored plan, a resumed export downloads some bytes again, but loses
    // nothing.
    await repository
      .savePlan(lease, this.#windows.toJson())
      .catch(() => undefined);
  }

  /**
   * Whether the source omits the line break at the end of a response. One request settles
   * this, in the slot of the response whose end is unproven.
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
      // A source that refuses such a range shows nothing about its line breaks.
      if (!(error instanceof PermanentError)) throw error;
    }
    this.#leavesLineEndOut.set(header, isAlone);
    return isAlone;
  }

  /**
   * Records that the source sent no rows for the plan's range.
   * @throws the given error, or a permanent error if a smaller range cannot help either
   */
  async #silent({ plan }: PlannedRequest, error: unknown): Promise<never> {
    const { scope } = this.#context.lease;
    const range = closedRange(plan);
    if (range === undefined || !SILENCES.has(errorCode(error))) throw error;
    const mayHelp = this.#windows.recordSilence(range);
    await this.keep();
    if (mayHelp) throw error;
    throw new PermanentError(
      `Cannot export party ${scope.partyId}: the source cannot answer; ` +
        'it sent no rows for the whole range, nor for a half or a quarter ' +
        'of it',
      {
        code: 'SOURCE_CANNOT_ANSWER',
        meta: { ...scope, from: String(range.from), to: String(range.to) },
        cause: error,
      },
    );
  }

  /**
   * Returns a function that decides, while a response arrives, whether to keep
   * receiving it. The response is cancelled once its requested rows exceed the maximum
   * size of an object, provided that the next request would be smaller. Rows outside
   * the request, such as known rows, do not count, because every smaller request would
   * return them too. They have a limit of their own: twice the known ledger, plus the
   * size of a few objects.
   * @returns a function that returns false to cancel, and throws `SOURCE_OUTSIDE_RANGE`
   *   if the response exceeds that limit
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
          `Cannot export party ${scope.partyId}: ${bytes} bytes arrived ` +
            'without an end, nearly all outside the requested range; check ' +
            'which service responds there, or export the party without ' +
            '--from and --to',
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
   * Runs `work` in one of the slots at the source. The slot belongs to the export's
   * lease.
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

  /**
   * Treats a message that is too large like a response that outgrew a segment: a
   * request for a smaller range may get smaller messages.
   * @throws the error if no smaller range can be requested
   */
  #tooLarge(asked: PlannedRequest, seen: StreamSeen, error: unknown): Outgrown {
    // With a known entry, a probe can show whether an end may be sent.
    const mayBound = asked.target.profile.known !== undefined;
    if (planShrunk(asked, this.#windows, seen, mayBound) === undefined)
      throw error;
    return { state: 'outgrown', seen, traits: undefined };
  }

  /**
   * Whether a response may be cancelled. Cancelling helps only if a request for a
   * shorter range returns fewer bytes. So the release must apply both bounds or, if
   * that is not known yet, there must be an entry that can show it.
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
    `Cannot export party ${partyId}: the source is behind (${state}); it ` +
      'closes nothing, and the next run requests it again',
    { code: 'SOURCE_BEHIND', meta: { partyId } },
  );
}

function pauseAfter(fruitless: number): number {
  return fruitless < 2
    ? 0
    : Math.min(PAUSE_MS * 2 ** (fruitless - 2), PAUSE_MS_MAX);
}

/**
 * The length of the range that a probe requests: the entry's second, plus the most by
 * which an entry's own time may exceed the exported time.
 */
const PROBE_MICROS = 3n * SECOND_MICROS;

export type Probe = WindowRequest & { readonly from: bigint };

/**
 * Returns a request that shows whether the source correctly applies a start and an end
 * together. It covers a few seconds around a known outgoing entry of a party. A release
 * that gets this wrong omits every outgoing entry and sends every incoming one.
 * @returns undefined if no such entry is known
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
 * Reads the response to a probe only as far as needed to decide. An error before that
 * point proves nothing and is thrown.
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
  // The last row may lack its line break. Even if it was cut off, its time is enough to
  // decide.
  splitter.push(Buffer.from('\n'));
  return found ?? 'broken';
}

/**
 * Returns the range to request in order to find out whether a source omits the final
 * line break. A final line without a line break may have been cut off, whatever the
 * format and framing of the response, because the source itself may truncate its
 * output. A response without entries settles the question if it consists of exactly the
 * same header line, again without a line break.
 * @returns a range in the source's future, where no party can have entries
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

/**
 * Whether a response consists of this header line alone.
 * @param header the header of the response whose end is unproven, without the line
 *   break
 */
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
