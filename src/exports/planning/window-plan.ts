/**
 * Decides how much of a ledger to request at once. Normally that is all of it, because
 * every request is a full scan at the source. But if a stream outgrows a segment, it is
 * cancelled, and if it breaks twice, it is not requested whole again. From then on the
 * range is requested in windows, earliest first, each shorter than the range that it
 * was cut from.
 *
 * Cancelled streams cost at most one extra download of the ledger: a stream is
 * cancelled only while the bytes cancelled so far do not exceed the known size of the
 * ledger. Streams that were in flight when a process was killed cost extra.
 *
 * For some ranges the source's query takes so long that it gives up before it sends
 * anything. Such a range is halved twice, which helps if the query time grows with the
 * range. If it does not, smaller ranges cannot help.
 *
 * The plan only proposes where to cut. What is left to request is recomputed from the
 * warehouse every time, so a lost or outdated plan costs only bytes. Pure.
 */
import { z } from 'zod';
import { DAY_MICROS, type Micros } from '../../time/time.ts';
import { instantOf, type Range, secondOf } from '../../ledger/ranges.ts';
import {
  findBorder,
  hasLess,
  mergeSeen,
  type HistogramBucket,
  sumBytes,
} from './time-histogram.ts';

/**
 * The target size of a window, as a fraction of the largest allowed stream. It is less
 * than 1 because the window's size is an estimate.
 */
const WINDOW_PART = 0.7;
/**
 * How many times a broken stream is requested whole again. After that, the range is
 * requested in windows half the size of what was received.
 */
const BREAKS_MAX = 1;
const BROKEN_PART = 0.5;
/** The smallest window that is worth a request. */
const LEAST_WINDOW_BYTES = 64 * 2 ** 10;
/**
 * The fraction of an unsorted stream to request next. It is small because the size of
 * the remainder is unknown.
 */
const UNSORTED_PART = 1 / 4;
/**
 * How many bytes may be downloaded twice because streams were cancelled, as a fraction
 * of a segment.
 */
const REPEATED_PART = 1 / 16;
const STRETCHES_MAX = 1024;
const SILENCES_BEFORE_HALVING = 2;
const HALVINGS_MAX = 2;
/**
 * The shortest range that is halved. If a query fails for a range this short, it would
 * fail for half of it too.
 */
const LONG_SECONDS_MIN = secondOf(DAY_MICROS);
/**
 * How long nodes keep entries by default. When a range must be halved blindly, anything
 * older is assumed to be empty.
 */
const USUAL_SECONDS_MAX = secondOf(180n * DAY_MICROS);

const count = z.number().nonnegative();
const planSchema = z.object({
  version: z.literal(5),
  breaks: z.int().nonnegative(),
  /** Bytes received before the last stream broke. */
  brokenBytes: count.optional(),
  /**
   * How many bytes unfinished streams have delivered for each stretch of time, counting
   * only rows that are not published yet.
   */
  seen: z
    .array(z.object({ from: z.int(), to: z.int(), bytes: count }).readonly())
    .max(STRETCHES_MAX)
    .readonly(),
  sortedTo: z.int().optional(),
  /** The last range whose response was too large, in seconds. */
  outgrown: z.object({ from: z.int(), to: z.int() }).optional(),
  /** Bytes of cancelled streams minus bytes of finished windows. */
  owedBytes: z.number(),
  /**
   * A known range, in seconds, for which a response showed more rows than are known. A
   * different node may not serve these rows.
   */
  shown: z
    .object({ from: z.int(), to: z.int(), rows: z.int().positive() })
    .optional(),
  silence: z.object({
    /** The number of consecutive requests that returned no row. */
    times: z.int().nonnegative(),
    /** The longest range to request, in seconds. */
    secondsMax: z.int().positive().optional(),
    /** The time before this second is assumed to be empty. */
    firstSecond: z.int().optional(),
  }),
});

/** How many rows a response had in a range. */
export interface ShownRows {
  readonly range: Range;
  readonly rows: number;
}

/** The part of a response that was received so far. */
export interface StreamSeen {
  /** Bytes of plain CSV. */
  readonly bytes: number;
  /** The bytes of the requested rows, by time. */
  readonly stretches: readonly HistogramBucket[];
  /**
   * The last second that was received if the rows were sorted by time, so that every
   * second before it is complete; otherwise undefined.
   */
  readonly sortedTo: number | undefined;
}

export class WindowPlan {
  /** Maximum number of bytes of one response; a larger one is cancelled. */
  readonly streamBytesMax: number;
  readonly #kept: z.output<typeof planSchema>;
  /** How dense the last window was, as an estimate for the next one. */
  #last:
    | { readonly toSecond: number; readonly bytesPerSecond: number }
    | undefined;

  /**
   * Resumes a stored plan, or begins a new one.
   * @param remembered the result of `toJson` from an earlier attempt; anything else is
   *   ignored
   */
  constructor(segmentBytesMax: number, remembered?: unknown) {
    this.streamBytesMax = segmentBytesMax;
    const known = planSchema.safeParse(remembered).data;
    this.#kept = known ?? {
      version: 5,
      breaks: 0,
      seen: [],
      owedBytes: 0,
      silence: { times: 0 },
    };
  }

  get #isBroken(): boolean {
    return this.#kept.breaks > BREAKS_MAX;
  }

  /** The target size of a window, in bytes. */
  get windowBytes(): number {
    const wanted = WINDOW_PART * this.streamBytesMax;
    const { brokenBytes = Infinity } = this.#kept;
    return this.#isBroken
      ? Math.min(
          wanted,
          Math.max(LEAST_WINDOW_BYTES, BROKEN_PART * brokenBytes),
        )
      : wanted;
  }

  /**
   * Whether another stream may be cancelled: the bytes cancelled so far do not exceed
   * the known size of the ledger.
   */
  get isAffordable(): boolean {
    const { seen, owedBytes } = this.#kept;
    return owedBytes <= sumBytes(seen) + REPEATED_PART * this.streamBytesMax;
  }

  /** Whether the source responds only to requests for short ranges. */
  get isSilent(): boolean {
    return this.#kept.silence.secondsMax !== undefined;
  }

  /**
   * Returns the most rows that a response showed for a known range. Until they are
   * published, a response with fewer is doubted.
   */
  get shown(): ShownRows | undefined {
    const { shown } = this.#kept;
    if (shown === undefined) return undefined;
    const { from, to, rows } = shown;
    return { range: { from: instantOf(from), to: instantOf(to) }, rows };
  }

  /** Returns the plan as it would be if the current stream were cancelled. */
  afterOutgrown(seen: StreamSeen, range: Range): WindowPlan {
    const copy = new WindowPlan(this.streamBytesMax, this.toJson());
    copy.recordOutgrown(seen, range);
    return copy;
  }

  /**
   * Returns where to end the next request for a range: a whole second strictly inside
   * it, and before the end of any range that was too large. Returns undefined to
   * request all of it.
   */
  cut(range: Range): Micros | undefined {
    const from = secondOf(range.from);
    const to = secondOf(range.to);
    const { firstSecond = -Infinity, secondsMax = Infinity } =
      this.#kept.silence;
    const second = Math.min(
      this.#cutBySize(from, to),
      Math.max(from, firstSecond) + secondsMax,
    );
    return second < to ? instantOf(second) : undefined;
  }

  /**
   * If a request up to the range's end returned too much, returns a later start, each
   * time closer to that end; undefined if it cannot move further.
   */
  laterStart(range: Range): Micros | undefined {
    const from = secondOf(range.from);
    const to = secondOf(range.to);
    const last = this.#kept.outgrown;
    if (last === undefined || last.to !== to) return undefined;
    const second = middleOf(Math.max(from, last.from), to);
    return second > from && second < to ? instantOf(second) : undefined;
  }

  /** Records that a response has more rows of a known range than are known. */
  recordShown({ range, rows }: ShownRows): void {
    if (rows <= (this.#kept.shown?.rows ?? 0)) return;
    this.#kept.shown = {
      from: secondOf(range.from),
      to: secondOf(range.to),
      rows,
    };
  }

  /**
   * Forgets the shown rows, because they are published or the source is known to serve
   * fewer.
   */
  forgetShown(): void {
    delete this.#kept.shown;
  }

  /** Records that a response broke off. */
  recordBroken(seen: StreamSeen): void {
    this.#kept.breaks += 1;
    this.#kept.brokenBytes = seen.bytes;
    this.#remember(seen);
    this.#last = undefined;
  }

  /**
   * Records that a response was cancelled.
   * @param range the range whose response was too large; absent if the request was sent
   *   to resolve a doubt about an earlier response
   */
  recordOutgrown(seen: StreamSeen, range?: Range): void {
    this.#remember(seen);
    this.#kept.owedBytes += sumBytes(seen.stretches);
    // Without a range, the request was sent to resolve a doubt, which a different
    // window would not resolve.
    if (range === undefined) return;
    this.#last = undefined;
    this.#kept.outgrown = {
      from: secondOf(range.from),
      to: secondOf(range.to),
    };
  }

  /**
   * Records that the source sent no rows for a range.
   * @returns false if another request cannot help
   */
  recordSilence(range: Range): boolean {
    const { silence } = this.#kept;
    silence.firstSecond ??= secondOf(range.to) - USUAL_SECONDS_MAX;
    const seconds =
      secondOf(range.to) - Math.max(secondOf(range.from), silence.firstSecond);
    // The range was longer than the limit, so this shows nothing about shorter ranges.
    if (silence.secondsMax !== undefined && seconds > silence.secondsMax)
      return true;
    const halvings = silence.times + 1 - SILENCES_BEFORE_HALVING;
    if (halvings >= HALVINGS_MAX) return false;
    silence.times += 1;
    if (halvings >= 0 && seconds > LONG_SECONDS_MIN)
      silence.secondsMax = Math.floor(seconds / 2);
    return true;
  }

  /**
   * Records that the response for a range was received to its end.
   * @param bytes the size of the range's rows
   * @param firstSecond the second of its first row; undefined if it has no rows
   */
  recordDone(
    range: Range,
    bytes: number,
    firstSecond: number | undefined,
  ): void {
    // A response without rows does not show that the query has become fast enough.
    if (bytes > 0) this.#kept.silence.times = 0;
    this.#kept.owedBytes -= bytes;
    const from = secondOf(range.from);
    const to = secondOf(range.to);
    this.#kept.seen = this.#kept.seen.filter((stretch) => stretch.from >= to);
    const seconds = Math.max(1, to - Math.max(from, firstSecond ?? from));
    this.#last = { toSecond: to, bytesPerSecond: bytes / seconds };
  }

  /**
   * Whether a response has fewer bytes in a range than an earlier unfinished response
   * showed.
   */
  isLess(answer: readonly HistogramBucket[], range: Range): boolean {
    return hasLess(
      answer,
      this.#seenWithin(secondOf(range.from), secondOf(range.to)),
    );
  }

  /** Serialises the plan so that a different worker can resume it. */
  toJson(): unknown {
    return structuredClone(this.#kept);
  }

  #seenWithin(from: number, to: number): readonly HistogramBucket[] {
    return this.#kept.seen.filter(
      (stretch) => stretch.from >= from && stretch.to <= to,
    );
  }

  #remember({ stretches, sortedTo }: StreamSeen): void {
    this.#kept.seen = mergeSeen(this.#kept.seen, stretches).slice(
      0,
      STRETCHES_MAX,
    );
    this.#kept.sortedTo = sortedTo;
  }

  /**
   * Returns the second to cut at. If the whole range can be requested, this is infinity,
   * or a second not before `to`.
   */
  #cutBySize(from: number, to: number): number {
    const { outgrown } = this.#kept;
    if (outgrown?.from === from) {
      const end = Math.min(to, outgrown.to);
      if (end - from < 2) return Infinity;
      const second = this.#cutBySeen(from, end);
      // If nothing seen so far suggests a boundary, the range is halved blindly.
      return second !== undefined && second > from && second < end
        ? second
        : middleOf(from, end);
    }
    if (this.#last?.toSecond === from)
      return (
        from +
        Math.max(1, Math.floor(this.windowBytes / this.#last.bytesPerSecond))
      );
    const isTooLarge = outgrown !== undefined || this.#isBroken;
    return (isTooLarge ? this.#cutBySeen(from, to) : undefined) ?? Infinity;
  }

  #cutBySeen(from: number, to: number): number | undefined {
    const seen = this.#seenWithin(from, to);
    const { sortedTo = from } = this.#kept;
    if (sortedTo <= from)
      return findBorder(seen, UNSORTED_PART * sumBytes(seen));
    const bytesMax = this.#isBroken ? this.windowBytes : this.streamBytesMax;
    return Math.min(sortedTo, findBorder(seen, bytesMax) ?? to);
  }
}

/**
 * Returns the middle of a range. If it begins in 1970, its first years are assumed to be
 * empty.
 */
function middleOf(from: number, to: number): number {
  const first = from === 0 ? Math.max(0, to - USUAL_SECONDS_MAX) : from;
  return Math.max(from + 1, Math.floor((first + to) / 2));
}
