/** Asks the source a small question now and then during a night: how it bears the exports. Nothing else tells. */
import type { ListLatency } from '../../source/observers.ts';

const PROBE_EVERY_MS = 30_000;
/** After a slow answer it is asked sooner. */
const PROBE_AGAIN_MS = 5_000;
/** One slow answer is a passing delay, on either side. */
const SLOW_ANSWERS_MAX = 3;
const SLOW_MS = 5_000;
/** Many times the usual, where the usual is not next to nothing. */
const SLOWER_TIMES = 10;
const USUAL_MIN_MS = 100;

/** Whether an answer took so much longer than usual that the source may want to be left alone. */
export function isSlow({ lastMs, medianMs }: ListLatency): boolean {
  return lastMs > SLOW_MS || lastMs > SLOWER_TIMES * Math.max(medianMs, USUAL_MIN_MS);
}

/** @returns what asks where it is time to, and tells how long the last answer took where several in a row were slow */
export function watchSource(
  probe: () => Promise<ListLatency>,
  everyMs = PROBE_EVERY_MS,
): () => Promise<ListLatency | undefined> {
  let probedAtMs = performance.now();
  let slowAnswers = 0;
  return async () => {
    const pauseMs = slowAnswers > 0 ? Math.min(PROBE_AGAIN_MS, everyMs) : everyMs;
    if (performance.now() - probedAtMs < pauseMs) return undefined;
    const latency = await probe();
    probedAtMs = performance.now();
    slowAnswers = isSlow(latency) ? slowAnswers + 1 : 0;
    return slowAnswers >= SLOW_ANSWERS_MAX ? latency : undefined;
  };
}
