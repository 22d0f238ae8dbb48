/** Finds out whether the source still refuses this process's credentials. */
import type { RotatingSecret } from '../network/rotating-secret.ts';
import type { Source, SourceCredentials } from '../source/source-client.ts';
import { isRefusalOf } from '../source/requester.ts';

/** The smallest page that the source serves reliably. */
const SMALLEST_PAGE = {
  newestFirst: true,
  size: 2,
  isSmall: true,
  isOneAttempt: true,
} as const;
const PROVE_TIMEOUT_MS = 30_000;
/** A source may ban clients that send a refused secret too often. */
const PROVE_EVERY_MS = 60_000;

/**
 * Returns a function that requests a page of a list, at most once a minute. If the
 * request fails for a reason other than the credentials, the credentials may be valid
 * again, so an earlier refusal is forgotten.
 * @throws from the returned function: the refusal, if the source refuses the pages of
 *   both lists
 */
export function openSourceProof(
  lists: Pick<Source['lists'], 'page'>,
  credentials: RotatingSecret<SourceCredentials>,
  nowMs = () => performance.now(),
): () => Promise<void> {
  let provenAtMs: number | undefined;
  return async () => {
    if (provenAtMs !== undefined && nowMs() - provenAtMs < PROVE_EVERY_MS)
      return;
    provenAtMs = nowMs();
    let refusal: unknown;
    for (const list of ['parties', 'checkpoints'] as const) {
      const signal = AbortSignal.timeout(PROVE_TIMEOUT_MS);
      try {
        await lists.page({ list, ...SMALLEST_PAGE }, signal);
        return;
      } catch (error) {
        if (!isRefusalOf(credentials.current, error)) {
          credentials.forgetRefusal();
          return;
        }
        refusal = error;
      }
    }
    throw refusal;
  };
}
