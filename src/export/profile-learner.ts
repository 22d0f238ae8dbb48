/** What an export learns of the source's release on its way, and keeps for all exports. */
import { PermanentError } from '../core/errors.ts';
import type { Outgrown, Received } from './fetch/receive.ts';
import { decided, learned, newestShown } from './plan/profile.ts';
import type { ExportScope, WindowRequest } from './ports.ts';
import type { SourceProfile } from './store/source-profile.ts';
import type { ExportDeps, ExportRequest } from './request.ts';

export class ProfileLearner {
  readonly #scope: ExportScope;
  readonly #request: ExportRequest;
  readonly #deps: Pick<ExportDeps, 'repository' | 'source'>;

  constructor(scope: ExportScope, request: ExportRequest, deps: ExportDeps) {
    this.#scope = scope;
    this.#request = request;
    this.#deps = deps;
  }

  /** @returns what is known with this answer */
  async learn(
    profile: SourceProfile,
    request: Pick<WindowRequest, 'from' | 'to'>,
    received: Received | Outgrown,
  ): Promise<SourceProfile> {
    const { layout, header } = received;
    if (layout === undefined || header === undefined) return profile;
    const traits = { farOutside: 0, leaving: 0, leavingSecond: undefined, ...received, layout, header };
    const seen = this.#seen(profile, received);
    const known = learned(seen, traits, { ...this.#scope, ...request }, this.#request.seenTime);
    if (known !== profile) await this.#deps.repository.learn(known);
    return known;
  }

  /** Some sources refuse a request without a start and an end: they are asked with both from now on, if that helps. */
  async mayWantBounds(error: unknown, profile: SourceProfile): Promise<boolean> {
    const isRefused = error instanceof PermanentError && error.code === 'EXPORT_REFUSED';
    if (!isRefused || error.meta['status'] !== 400) return false;
    // One that has answered without them refuses something else.
    if (profile.header !== undefined && profile.boundsDemanded !== true) return false;
    const boundsDemanded = profile.boundsDemanded === true ? undefined : true;
    await this.#deps.repository.learn({ ...profile, boundsDemanded });
    return boundsDemanded === true;
  }

  /** Something left the party after all, where nothing did between a start and an end. */
  async distrustBounds(): Promise<void> {
    const { repository } = this.#deps;
    const evidence = 'entries that left a party came with a start alone, and not with a start and an end';
    const profile = await repository.profile();
    await repository.learn({ ...profile, ...decided('broken', evidence, this.#request.seenTime) });
  }

  #seen(profile: SourceProfile, received: Received | Outgrown): SourceProfile {
    const isTimeless = this.#deps.source.hasTimes ? undefined : true;
    const isUntold = this.#request.isClockGuessed === true && received.state === 'complete';
    const shownTo = isUntold ? newestShown(profile, received.newestSecond) : profile.shownTo;
    const isSame = profile.isTimeless === isTimeless && profile.shownTo === shownTo;
    return isSame ? profile : { ...profile, isTimeless, shownTo };
  }
}
